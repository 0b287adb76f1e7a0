// The page without data, which CMake makes of runtime/viz/page and the libraries (cmake/viz_page.cmake).
#pragma once
#include <string>

namespace xhat {

// "{{title}}" and "{{data}}" stand where these go.
std::string viz_page();

}  // namespace xhat
