// SPDX-License-Identifier: Apache-2.0
//
// The filters over lists, dicts and what else can be looped over; FindFilter (template/builtins.h)
// looks here for what is no filter of a single value.
#pragma once

#include <string_view>

#include "template/builtins.h"

namespace tessera::jinja {

Filter FindListFilter(std::string_view name);

}  // namespace tessera::jinja
