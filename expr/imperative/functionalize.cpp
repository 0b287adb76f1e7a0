#include "expr/text/elaborate_scope.h"

namespace xhat {

Program elaborate_prog(const ast::File&, const std::shared_ptr<Arena>&, const ast::Op& prog,
                       const std::map<std::string, std::shared_ptr<const Program>>&) {
  throw Error("not yet: imperative programs (prog) come later", prog.pos);
}

}  // namespace xhat
