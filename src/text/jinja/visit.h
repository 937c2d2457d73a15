// One step down the syntax tree, for the passes over it.
#pragma once

#include "text/jinja/ast.h"

namespace quire::text::jinja {

template <typename Visitor>
void VisitArguments(const CallArguments& arguments, const Visitor& visit) {
  for (const ExprPtr& argument : arguments.positional) visit(*argument);
  for (const auto& [name, argument] : arguments.keyword) visit(*argument);
  if (arguments.star) visit(*arguments.star);
  if (arguments.double_star) visit(*arguments.double_star);
}

// Calls `visit` with every direct child of `node`, in the order of evaluation as jinja2 sees it.
template <typename Visitor>
void VisitChildren(const Expr& node, const Visitor& visit) {
  const auto visit_all = [&](const std::vector<ExprPtr>& items) {
    for (const ExprPtr& item : items) visit(*item);
  };
  const auto visit_if = [&](const ExprPtr& item) {
    if (item) visit(*item);
  };
  switch (node.kind) {
    case ExprKind::kConstant:
    case ExprKind::kName:
      return;
    case ExprKind::kTuple:
    case ExprKind::kList:
    case ExprKind::kConcat:
      return visit_all(static_cast<const SequenceExpr&>(node).items);
    case ExprKind::kDict:
      for (const auto& [key, value] : static_cast<const DictExpr&>(node).entries) visit(*key), visit(*value);
      return;
    case ExprKind::kConditional: {
      const auto& conditional = static_cast<const ConditionalExpr&>(node);
      visit(*conditional.test), visit(*conditional.then), visit_if(conditional.otherwise);
      return;
    }
    case ExprKind::kLogical:
      return visit_all(static_cast<const LogicalExpr&>(node).items);
    case ExprKind::kNot:
    case ExprKind::kSign:
      return visit(*static_cast<const UnaryExpr&>(node).operand);
    case ExprKind::kComparison:
    case ExprKind::kArithmetic: {
      const auto& chain = static_cast<const ChainExpr&>(node);
      visit(*chain.first);
      for (const auto& [operation, operand] : chain.rest) visit(*operand);
      return;
    }
    case ExprKind::kAttribute:
      return visit(*static_cast<const AttributeExpr&>(node).object);
    case ExprKind::kSubscript: {
      const auto& subscript = static_cast<const SubscriptExpr&>(node);
      visit(*subscript.object), visit(*subscript.index);
      return;
    }
    case ExprKind::kSlice: {
      const auto& slice = static_cast<const SliceExpr&>(node);
      visit(*slice.object), visit_if(slice.start), visit_if(slice.stop), visit_if(slice.step);
      return;
    }
    case ExprKind::kCall: {
      const auto& call = static_cast<const CallExpr&>(node);
      visit(*call.function), VisitArguments(call.arguments, visit);
      return;
    }
    case ExprKind::kFilter:
    case ExprKind::kTest: {
      const auto& filter = static_cast<const FilterExpr&>(node);
      visit_if(filter.operand), VisitArguments(filter.arguments, visit);
      return;
    }
  }
}

}  // namespace quire::text::jinja
