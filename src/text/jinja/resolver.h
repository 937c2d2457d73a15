// Which variable a name means. jinja2 decides this when it compiles a template, and templates depend on the outcome:
// a name set inside a loop body is the body's own and starts, in every iteration, with the value from outside; a name
// set in only one branch of an if is looked up among the caller's variables when the branch is not taken; a macro sees
// the variables around its definition as they are when it is called.
//
// Scopes (template, loop body, macro, call block, set block, filter block, with) hold variables; a scope is entered by
// executing its ScopeLoads. Functions (template, macro, call block, recursive loop) hold the slots of their scopes.
#pragma once

#include "base/result.h"
#include "text/jinja/ast.h"

namespace quire::text::jinja {

// Completes a parsed tree. Fails, with the line, for filters and tests that do not exist (outside of conditions, where
// jinja2 waits until they are used) and for assignments to `loop` inside its for.
Result<> Resolve(TemplateTree* tree);

}  // namespace quire::text::jinja
