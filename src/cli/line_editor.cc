#include "cli/line_editor.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <iostream>
#include <system_error>
#include <utility>

namespace quire::cli {
namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

struct LineEditor::Impl {
  std::filesystem::path history_file;
  std::string prompt;
  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};

  static char* Prompt(EditLine* edit) {
    void* data = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &data);
    return static_cast<Impl*>(data)->prompt.data();
  }
};

LineEditor::LineEditor(std::filesystem::path history_file) : impl_(std::make_unique<Impl>()) {
  impl_->history_file = std::move(history_file);
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) return;
  // The editor counts columns of characters, not bytes.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  impl_->edit = ::el_init("quire", stdin, stdout, stderr);
  if (impl_->edit == nullptr) return;
  ::el_set(impl_->edit, EL_CLIENTDATA, impl_.get());
  ::el_set(impl_->edit, EL_PROMPT_ESC, &Impl::Prompt, '\1');
  ::el_set(impl_->edit, EL_EDITOR, "emacs");
  ::el_set(impl_->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  impl_->history = ::history_init();
  if (impl_->history == nullptr) return;
  ::history(impl_->history, &impl_->event, H_SETSIZE, kHistoryLines);
  ::history(impl_->history, &impl_->event, H_SETUNIQUE, 1);
  ::el_set(impl_->edit, EL_HIST, ::history, impl_->history);
  if (!impl_->history_file.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(impl_->history_file.parent_path(), ignored);
    ::history(impl_->history, &impl_->event, H_LOAD, impl_->history_file.c_str());
  }
}

LineEditor::~LineEditor() {
  if (impl_->history != nullptr) {
    if (!impl_->history_file.empty()) {
      const mode_t mask = ::umask(077);
      ::history(impl_->history, &impl_->event, H_SAVE, impl_->history_file.c_str());
      ::umask(mask);
    }
    ::history_end(impl_->history);
  }
  if (impl_->edit != nullptr) ::el_end(impl_->edit);
}

bool LineEditor::is_interactive() const {
  return impl_->edit != nullptr;
}

LineEditor::Outcome LineEditor::Read(const std::string& prompt, std::string* line) {
  if (impl_->edit == nullptr) {
    if (std::getline(std::cin, *line)) return Outcome::kLine;
    return Outcome::kEnd;
  }
  impl_->prompt = prompt;
  int count = 0;
  errno = 0;
  const char* text = ::el_gets(impl_->edit, &count);
  if (text == nullptr || count <= 0) {
    if (errno != EINTR) return Outcome::kEnd;
    ::el_reset(impl_->edit);
    return Outcome::kInterrupted;
  }
  line->assign(text, static_cast<std::size_t>(count));
  while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
  if (impl_->history != nullptr && line->find_first_not_of(' ') != std::string::npos) {
    ::history(impl_->history, &impl_->event, H_ENTER, line->c_str());
  }
  return Outcome::kLine;
}

}  // namespace quire::cli
