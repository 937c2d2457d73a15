#include "sched/fair_share.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace quire::sched {

FairShare::FairShare(const SchedulerConfig& config, std::unique_ptr<Policy> within_tenant)
    : input_weight_(config.input_token_weight),
      output_weight_(config.output_token_weight),
      within_tenant_(std::move(within_tenant)) {}

FairShare::Tenant& FairShare::TenantOf(const Request& request) {
  const auto index = static_cast<std::size_t>(request.terms.tenant);
  if (index >= tenants_.size()) tenants_.resize(index + 1);
  return tenants_[index];
}

double FairShare::CounterOf(std::int32_t tenant) const {
  const auto index = static_cast<std::size_t>(tenant);
  return index < tenants_.size() ? tenants_[index].counter : 0;
}

void FairShare::Order(std::span<Sequence* const> waiting, const kv::KvManager& kv, TimePoint now,
                      std::vector<Sequence*>* order) {
  within_tenant_->Order(waiting, kv, now, order);
  waiting_.clear();
  for (Sequence* const sequence : *order) {
    Tenant& tenant = TenantOf(sequence->request());
    if (tenant.waiting.empty()) {
      waiting_.push_back(sequence->request().terms.tenant);
      tenant.provisional = tenant.counter;
      tenant.next = 0;
    }
    tenant.waiting.push_back(sequence);
  }
  // As if each were admitted in turn: its prompt counts at once, so that a tenant does not get the whole step.
  const auto behind = [this](std::int32_t a, std::int32_t b) {
    const double of_a = tenants_[static_cast<std::size_t>(a)].provisional;
    const double of_b = tenants_[static_cast<std::size_t>(b)].provisional;
    return of_a != of_b ? of_a > of_b : a > b;
  };
  order->clear();
  std::ranges::make_heap(waiting_, behind);
  while (!waiting_.empty()) {
    std::ranges::pop_heap(waiting_, behind);
    Tenant& tenant = tenants_[static_cast<std::size_t>(waiting_.back())];
    Sequence* const sequence = tenant.waiting[tenant.next++];
    order->push_back(sequence);
    tenant.provisional += input_weight_ * sequence->num_prompt_tokens();
    if (tenant.next < tenant.waiting.size()) {
      std::ranges::push_heap(waiting_, behind);
    } else {
      tenant.waiting.clear();
      waiting_.pop_back();
    }
  }
}

void FairShare::OnArrival(Request* request, std::span<Sequence* const> waiting) {
  within_tenant_->OnArrival(request, waiting);
  Tenant& tenant = TenantOf(*request);
  double lowest = std::numeric_limits<double>::infinity();
  for (const Sequence* const sequence : waiting) {
    if (sequence->request().terms.tenant == request->terms.tenant) return;  // has not been away
    lowest = std::min(lowest, CounterOf(sequence->request().terms.tenant));
  }
  if (waiting.empty()) lowest = CounterOf(last_to_leave_);
  tenant.counter = std::max(tenant.counter, lowest);
}

void FairShare::OnAdmission(const Sequence& sequence, int num_cached_tokens) {
  within_tenant_->OnAdmission(sequence, num_cached_tokens);
  last_to_leave_ = sequence.request().terms.tenant;
  const int num_computed = std::max(0, sequence.num_prompt_tokens() - num_cached_tokens);
  TenantOf(sequence.request()).counter += input_weight_ * num_computed;
}

void FairShare::OnToken(const Sequence& sequence) {
  within_tenant_->OnToken(sequence);
  TenantOf(sequence.request()).counter += output_weight_;
}

}  // namespace quire::sched
