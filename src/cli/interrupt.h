// SPDX-License-Identifier: Apache-2.0
//
// The first Ctrl-C only sets a flag, so that what there is can be printed; the second has its
// default effect.
//
// Threads: any may ask.
#pragma once

namespace tessera::cli {

// The exit code of what an interrupt ended.
inline constexpr int kInterruptedCode = 130;

// Once, before the work begins.
void CatchFirstInterrupt();
bool Interrupted();

}  // namespace tessera::cli
