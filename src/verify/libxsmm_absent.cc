// SPDX-License-Identifier: Apache-2.0
//
// Takes the place of libxsmm_product.cc where the library was not there when this was built.
#include "base/check.h"
#include "verify/libxsmm_product.h"

namespace tessera {

std::string WhyNoLibxsmm() { return "not part of this build"; }

std::vector<float> LibxsmmProduct(const LibxsmmOperands&) { TESSERA_CHECK(false); }

}  // namespace tessera
