// SPDX-License-Identifier: Apache-2.0
//
// Peer is the client at the other end, as much of it as an answer needs to know: whether it is
// still there, and, once the answer streams, a way to send. The transport implements it.
//
// Threads: the thread of the request.
#pragma once

#include <string_view>

namespace tessera {

class Peer {
 public:
  virtual ~Peer() = default;
  // It closed its side, or the connection broke. Cheap: asked once per token.
  virtual bool Gone() = 0;
};

class PeerStream : public Peer {
 public:
  // False: the peer is gone, or took nothing for too long.
  virtual bool Write(std::string_view bytes) = 0;
};

}  // namespace tessera
