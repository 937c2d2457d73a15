// The tiers of the machine that the test runs on, and their names.
#include <gtest/gtest.h>

#include <string>

#include "kernels/kernel_table.h"

namespace quire::kernels {
namespace {

TEST(SelectKernels, EveryTierByItsNameAndTheLastOneWithout) {
  const auto available = AvailableKernels();
  EXPECT_EQ(available.front(), &ReferenceKernels());
  EXPECT_EQ(SelectKernels("").value(), available.back());
  EXPECT_EQ(SelectKernels("auto").value(), available.back());
  for (const KernelTable* table : available) EXPECT_EQ(SelectKernels(table->isa).value(), table);
}

TEST(SelectKernels, WhatIsNoTierAndWhatIsOneOfAnotherMachine) {
  const auto unknown = SelectKernels("mmx");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("reference"), std::string::npos);

  // No machine has both.
  const bool is_x86 = SelectKernels("avx2").has_value();
  const auto foreign = SelectKernels(is_x86 ? "neon" : "avx2");
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(foreign.error().message.find("reference"), std::string::npos);
}

}  // namespace
}  // namespace quire::kernels
