// The devices that an op can run on.
#pragma once
#include <cstdint>
#include <string_view>

namespace xhat {

enum class Target : uint8_t { cpu, cuda, opencl, vulkan };

std::string_view name_of(Target target);

}  // namespace xhat
