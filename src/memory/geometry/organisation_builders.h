// SPDX-License-Identifier: Apache-2.0
//
// The builders of the five tables (one file each: s0.cc s1.cc s2.cc d0.cc s3.cc) and the steps they
// share. A builder is given a valid shape and an empty table; it fills everything but spec, planes
// and page counts. Private to memory/geometry.
#pragma once

#include "memory/geometry/organisation.h"

namespace tessera::geometry {

void BuildS0(const StateShape& shape, const OrganisationSpec& spec, Organisation* table);
void BuildS1(const StateShape& shape, const OrganisationSpec& spec, Organisation* table);
void BuildS2(const StateShape& shape, const OrganisationSpec& spec, Organisation* table);
void BuildD0(const StateShape& shape, const OrganisationSpec& spec, Organisation* table);
void BuildS3(const StateShape& shape, const OrganisationSpec& spec, Organisation* table);

// What a page's unit is rounded up to where images live: rows and vector loads stay in one member.
uint64_t MemberAlignment(const StateShape& shape);

// Bytes of the attention state of one block in one plane.
uint64_t BlockBytes(const StateShape& shape, const OrganisationSpec& spec);

// One pool that takes the whole budget, for both kinds.
void AddSharedPool(const StateShape& shape, uint64_t unit_bytes, Organisation* table);

// Attention pages of `pool` hold `groups_per_page` groups. Nothing when the shape has none.
void PutAttention(const StateShape& shape, int pool, uint32_t groups_per_page, Organisation* table);

// The image is one range, SSM then conv, over whole pages of `pool`.
void PutWholeImage(const StateShape& shape, int pool, Organisation* table);

// SSM and conv each start a page of their own in `pool`.
void PutSplitImage(const StateShape& shape, int pool, Organisation* table);

// Gives images a slot of `slot_bytes` when at least two fit a page; says whether it did. The caller
// takes the pages that the slot replaces out of state_pages.
bool PutSlot(uint64_t slot_bytes, Organisation* table);

}  // namespace tessera::geometry
