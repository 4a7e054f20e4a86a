// SPDX-License-Identifier: Apache-2.0
#include "verify/state_pieces.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace tessera {
namespace {

void ForEachMember(const PagedBytes& image, uint64_t start, uint64_t size, StatePiece piece,
                   StatePieceVisitor visit) {
  for (uint64_t at = 0; at < size; at += piece.size) {
    piece.offset = at;
    piece.size = std::min(size - at, image.ContiguousFrom(start + at));
    piece.data = image.At(start + at);
    visit(piece);
  }
}

void ForEachImagePiece(EvidenceKind kind, const StateShape& shape, const StateView& view,
                       const PagedBytes& image, uint32_t plane, StatePieceVisitor visit) {
  const bool ssm = kind == EvidenceKind::kSsm;
  const StatePiece piece{.plane = plane,
                         .element_bits = ssm && shape.state_type == StateType::kF32 ? 32u : 16u};
  ForEachMember(image, ssm ? view.ssm_start : view.conv_start,
                ssm ? shape.ssm_image_bytes() : shape.conv_image_bytes(), piece, visit);
}

}  // namespace

void ForEachStatePiece(const EvidencePlace& place, const StateShape& shape, const StateView& view,
                       StatePieceVisitor visit) {
  const uint32_t groups = shape.attention_layers == 0
                              ? 0
                              : static_cast<uint32_t>(DivideUp(place.position, kGroupTokens));
  for (uint32_t plane = 0; plane < shape.planes(); ++plane) {
    if (place.kind != EvidenceKind::kAttention) {
      if (shape.recurrent_layers == 0) continue;
      ForEachImagePiece(place.kind, shape, view, view.Destination(plane), plane, visit);
      continue;
    }
    for (uint32_t group = 0; group < groups; ++group) {
      visit({.plane = plane,
             .offset = group * shape.group_bytes(),
             .data = view.GroupAt(plane, group),
             .size = shape.group_bytes(),
             .element_bits = 16});
    }
  }
}

void ForEachSourcePiece(const StateShape& shape, const StateView& view, StatePieceVisitor visit) {
  TESSERA_CHECK(view.source_offsets != nullptr);
  for (uint32_t plane = 0; plane < shape.planes(); ++plane) {
    for (EvidenceKind kind : {EvidenceKind::kSsm, EvidenceKind::kConv}) {
      ForEachImagePiece(kind, shape, view, view.Source(plane), plane, visit);
    }
  }
}

void ForEachDestinationPiece(const StateShape& shape, const StateView& view,
                             StatePieceVisitor visit) {
  StateView as_source = view;
  as_source.source_offsets = view.destination_offsets;
  ForEachSourcePiece(shape, as_source, visit);
}

std::vector<std::byte> SourceBytes(const StateShape& shape, const StateView& view) {
  if (view.source_offsets == nullptr) {
    return std::vector<std::byte>(shape.planes() *
                                  (shape.ssm_image_bytes() + shape.conv_image_bytes()));
  }
  std::vector<std::byte> bytes;
  ForEachSourcePiece(shape, view, [&bytes](const StatePiece& piece) {
    bytes.insert(bytes.end(), piece.data, piece.data + piece.size);
  });
  return bytes;
}

}  // namespace tessera
