import { DIRECTORY_KEY, USERS_PARTITION, User } from "../access/user.ts";
import { OWNERS, OWNERS_ROW, OwnersRow } from "../alerts/owners.ts";
import { RULE_PREFIX, RULES, Rules } from "../alerts/rule.ts";
import { SNOOZES, SnoozeRows } from "../alerts/snooze.ts";
import { APPROVALS, Approvals } from "../approvals/approval.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { SignedRange } from "../platform/storage/signed-partitions.ts";
import { PROPOSALS, Proposals } from "../proposals/proposal.ts";
import { OVERRIDES, SETTINGS_PARTITION, SettingsRow } from "../settings/settings.ts";
import { STREAM_PREFIX, STREAMS, Streams } from "../siem/stream.ts";
import { CONFIGURATION_KEY, Configuration, SSO } from "../sso/configuration.ts";
import { SUBSCRIPTIONS_PARTITION, SubscriptionRow } from "../subscriptions/added-subscriptions.ts";

/**
 * The rows that decide who may do what, who is notified, and how the service behaves. Each kind of row here is an entity with
 * `signed: "adopted"`: unsigned rows of earlier versions are accepted until this version has signed them. No earlier version has
 * streams, so those are `signed: true`. The rows of a
 * `listed` range are named in 16 signed lists. With them, the service detects that a row was removed, that a removed row was
 * restored, or that a row was replaced by an older copy of it. Snoozes and subscriptions are signed but not listed, because an
 * earlier version reads their whole partitions and could not read a list. `fixedKeys` are rows that always exist, so that their
 * removal is detected even without the list. A table has at most one listed range, because the key vault stores the sequences of
 * lists by table.
 */
export const SIGNED_RANGES: readonly SignedRange[] = [
  { table: User.table, partitionKey: USERS_PARTITION, listed: true, fixedKeys: [DIRECTORY_KEY] },
  {
    table: Configuration.table,
    partitionKey: SSO,
    from: CONFIGURATION_KEY,
    before: keyEnd(CONFIGURATION_KEY),
    listed: true,
    fixedKeys: [CONFIGURATION_KEY],
  },
  {
    table: SettingsRow.table,
    partitionKey: SETTINGS_PARTITION,
    listed: true,
    fixedKeys: [OVERRIDES],
  },
  { table: Rules.table, partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX), listed: true },
  { table: OwnersRow.table, partitionKey: OWNERS, listed: true, fixedKeys: [OWNERS_ROW] },
  { table: Approvals.table, partitionKey: APPROVALS, listed: true },
  { table: Proposals.table, partitionKey: PROPOSALS, listed: true },
  { table: Streams.table, partitionKey: STREAMS, from: STREAM_PREFIX, before: keyEnd(STREAM_PREFIX), listed: true },
  { table: SnoozeRows.table, partitionKey: SNOOZES, listed: false },
  { table: SubscriptionRow.table, partitionKey: SUBSCRIPTIONS_PARTITION, listed: false },
];
