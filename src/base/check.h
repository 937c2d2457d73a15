// CHECK: what must hold unless quire itself has a bug. It is always on. Input from outside (files, sockets,
// users) never reaches a CHECK; it is turned into an Error first. DCHECK is the same, left out of release builds.
#pragma once

namespace quire::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace quire::internal

#define CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::quire::internal::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define DCHECK(condition) (true ? void(0) : void(condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
