// For users: lazy arrays, which compute when they are asked (docs/lazy.md).
#pragma once
#include "runtime/lazy/lazy.h"
