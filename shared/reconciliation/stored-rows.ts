import { ApiToken } from "../access/api-tokens.ts";
import { BootstrapMarker } from "../access/bootstrap.ts";
import { EarlierSession } from "../access/earlier-sessions.ts";
import { Failures } from "../access/sign-in-failures.ts";
import { Directory, Identity, Refusal, User } from "../access/user.ts";
import { AcknowledgementRows } from "../alerts/acknowledgements.ts";
import { Deliveries } from "../alerts/delivery.ts";
import { HistoryRow } from "../alerts/history.ts";
import { SentMailTimes } from "../alerts/mail-rate-limit.ts";
import { Mailboxes } from "../alerts/mailbox.ts";
import { NotificationRows } from "../alerts/notification-log.ts";
import { OwnersRow } from "../alerts/owners.ts";
import { RestoreMarkers } from "../alerts/restore-marker.ts";
import { RuleNames, RuleSecretRows, Rules } from "../alerts/rule.ts";
import { RuleStates } from "../alerts/rule-state.ts";
import { SnoozeRows } from "../alerts/snooze.ts";
import { TrackedRows } from "../alerts/tracked-alerts.ts";
import { VaultVersions } from "../alerts/vault-changes.ts";
import * as applications from "../applications/application.ts";
import { Approvals } from "../approvals/approval.ts";
import * as audit from "../audit/rows.ts";
import * as b2c from "../b2c/tenant.ts";
import { AuthorityRows } from "../certificate-renewal/authority.ts";
import { Budgets, Pauses } from "../certificate-renewal/budgets.ts";
import { Policies as RenewalPolicies, Schedules } from "../certificate-renewal/policy.ts";
import { RenewalPointers, Renewals } from "../certificate-renewal/renewal.ts";
import { ENDPOINTS, Endpoints } from "../certificates/endpoint.ts";
import * as compliance from "../compliance/compliance-rows.ts";
import * as usage from "../dependencies/logs/rows.ts";
import * as dependencies from "../dependencies/rows.ts";
import { ProofRow } from "../devops/connection-proofs.ts";
import { SettingsRow as DevopsSettings } from "../devops/settings.ts";
import { RescanRows } from "../discovery/rescan-rows.ts";
import * as scans from "../discovery/scan.ts";
import { Assets } from "../inventory/asset.ts";
import { AssetFences } from "../inventory/asset-keys.ts";
import { ChangeRows } from "../inventory/change-log.ts";
import { ChangedVaults } from "../inventory/changed-vaults.ts";
import { ScopeRows } from "../inventory/scope.ts";
import * as inventoryTotals from "../inventory/totals.ts";
import { PendingWrites, RemovedVaults, Vaults } from "../inventory/vault.ts";
import * as keyRotation from "../key-rotation/run.ts";
import { FailedMessageRows, LastDeliveries } from "../messages/failed-messages.ts";
import { IdempotencyKeys } from "../platform/http/idempotency.ts";
import { Calls } from "../platform/http/rate-limit.ts";
import { activeRuns } from "../platform/runs/run-store.ts";
import type { Entity } from "../platform/storage/entity.ts";
import { isListKey, keyEnd, LIST_PREFIX } from "../platform/storage/keys.ts";
import { listEntity } from "../platform/storage/row-lists.ts";
import type { Range, StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import { Proposals } from "../proposals/proposal.ts";
import { DatabaseLogins, RegisteredUsers } from "../rotation/database-logins/registrations.ts";
import { MatchPointers, MatchRows } from "../rotation/match.ts";
import { Status as IndexStatus, VaultIndexes } from "../rotation/match-index.ts";
import { Policies } from "../rotation/policy.ts";
import { Runs as KeyLinkRuns } from "../rotation/resource-keys/discovery-run.ts";
import { Comparisons, KeyLinkPointers, KeyLinks } from "../rotation/resource-keys/links.ts";
import * as rotation from "../rotation/rotation.ts";
import { SecretlessPointers, SecretlessRuns } from "../rotation/secretless-run.ts";
import { secretRows } from "../secrets/stored-secrets.ts";
import { SettingsRow } from "../settings/settings.ts";
import { Progress as AuditStreamProgress, Streams as AuditStreamRows } from "../siem/stream.ts";
import { Configuration, Logins } from "../sso/configuration.ts";
import { Request } from "../sso/sign-in-requests.ts";
import { UsedMessage } from "../sso/used-messages.ts";
import { SubscriptionRow } from "../subscriptions/added-subscriptions.ts";
import { LastScanRow } from "../subscriptions/last-scans.ts";
import * as sync from "../sync/record.ts";
import { Listed, Summary } from "../unreadable-rows/unreadable-rows.ts";
import { Walks } from "./walk-record.ts";

/**
 * All kinds of rows that the service stores, and where. test/unreadable-rows compares this list with the entities in the code,
 * and makes one row of each kind unreadable. The README of the storage module says who reads which row.
 */

/** The rows of one kind. */
export interface StoredKind {
  readonly entity: Entity<unknown>;
  /** The partition. With `*` at the end: all partitions with this prefix. */
  readonly partition: string;
  /** The row key. With `*` at the end: all row keys with this prefix. */
  readonly key: string;
  /** Distinguishes the rows from those of other kinds that have the same key prefix. */
  readonly isOfKind?: ((rowKey: string, partitionKey: string) => boolean) | undefined;
}

/** Declares the rows of one kind. The file that declares the entity explains its key prefixes. */
const rows = (
  entity: Entity<unknown>,
  partition: string,
  key: string,
  isOfKind?: StoredKind["isOfKind"],
): StoredKind => ({ entity, partition, key, isOfKind });

/** Declares the rows of a module's runs, and the row `active`, which names the run in progress. */
const runs = (entity: Entity<unknown>, partition: string): StoredKind[] => [
  rows(entity, partition, "*", (key) => key !== "active"),
  rows(activeRuns(entity.table), partition, "active"),
];

/** Declares the signed lists that name the signed rows of a partition. With them, the service detects older and removed rows. */
const lists = ({ table }: Entity<unknown>, partition: string): StoredKind =>
  rows(listEntity(table), partition, `${LIST_PREFIX}*`);

/** Kinds that other stages and checks of a walk compare with the rows from which they follow, or that the audit log verifies. */
export const COMPARED_ROWS: readonly StoredKind[] = [
  ...["all", "sub:*", "vault:*"].flatMap((partition) => [
    rows(Assets, partition, "n!*"),
    rows(Assets, partition, "e!*"),
    rows(AssetFences, partition, "f!*"),
  ]),
  rows(Vaults, "vaults", "n!*"),
  rows(Vaults, "vaults", "s!*"),
  rows(inventoryTotals.TotalsRows, "vaults", "k!totals"),
  rows(inventoryTotals.TotalsEnd, "vaults", "l!~"),
  rows(ChangedVaults, "vaults", "l!*", (key) => key !== "l!~"),
  rows(compliance.VaultStates, "state", "5!*"),
  rows(compliance.Details, "state", "6!*", (key) => !compliance.vaultOfFence(key)),
  rows(compliance.ResultFences, "state", "6!*", (key) => compliance.vaultOfFence(key) !== undefined),
  rows(compliance.Findings, "state", "1!*"),
  rows(compliance.TotalsRows, "state", "4!totals"),
  rows(compliance.TotalsEnd, "state", "4!totals~"),
  rows(compliance.ChangedRows, "state", "4!totals!*"),
  rows(scans.ActiveScans, "active", "active"),
  rows(audit.EntryRow, "*", "*", (key) => !audit.isMarkOrLastRow(key)),
  rows(audit.ClosedMark, "*", "~born|*"),
  rows(audit.LastRow, "*", "~last|*"),
  rows(audit.IndexRow, "entries", "*"),
  rows(audit.DigestRow, "digests", "*"),
  rows(audit.FirstRow, "first", "*"),
  rows(audit.ManifestRow, "manifests", "*"),
  rows(audit.RecordRow, "purges", "*"),
  rows(audit.RecordRow, "keys", "*"),
  rows(audit.RecordRow, "rollback", "*"),
  rows(rotation.Rotations, "rotations", "r|*"),
  rows(rotation.RotationPointers, "rotations", "u|*"),
  rows(rotation.RotationPointers, "rotations", "d|*"),
  rows(sync.Records, "sync", "r|*"),
  rows(sync.References, "sync", "t|*"),
  rows(sync.References, "sync", "s|*"),
  rows(sync.DueRows, "sync", "d|*"),
];

/** All other kinds. A walk only reads their rows, so that those that can't be read are listed and recorded. */
export const OTHER_ROWS: readonly StoredKind[] = [
  rows(ChangeRows, "vaults", "c!*"),
  rows(ScopeRows, "vaults", "m!scope"),
  rows(PendingWrites, "vaults", "w!*"),
  rows(RemovedVaults, "vaults", "x!*"),

  rows(scans.Scans, "scan:*", "0"),
  rows(scans.PlannedVaults, "scan:*", "1!*"),
  rows(scans.PlannedVaults, "scan:*", "2*"),
  rows(scans.VaultOutcomes, "scan:*", "3!*"),
  rows(scans.Scans, "scans", "*"),
  rows(scans.FirstScans, "first", "first"),
  rows(RescanRows, "looks", "*"),

  rows(compliance.NewViolationRows, "state", "0!*"),
  rows(compliance.Exemptions, "state", "2!*"),
  rows(compliance.Exemptions, "state", "3!*"),
  rows(compliance.Evaluations, "state", "4!evaluation"),
  rows(compliance.ThresholdsRows, "state", "4!lines"),
  rows(compliance.DayScores, "history", "*"),
  rows(compliance.Evaluations, "evaluations", "*"),

  rows(Rules, "rules", "r|*"),
  rows(RuleNames, "rules", "n|*"),
  rows(RuleSecretRows, "rules", "s|*"),
  rows(RuleStates, "states", "*"),
  rows(VaultVersions, "vaultVersions", "vaultVersions"),
  rows(RestoreMarkers, "restore", "restore"),
  rows(NotificationRows, "*", "*", (key) => !key.startsWith("o!")),
  rows(TrackedRows, "*", "o!*"),
  rows(Deliveries, "*", "0"),
  rows(HistoryRow, "history", "*"),
  rows(SnoozeRows, "snoozes", "*"),
  rows(AcknowledgementRows, "acknowledgements", "*"),
  rows(Mailboxes, "mailboxes", "m|*"),
  rows(SentMailTimes, "mailboxes", "pace"),
  rows(OwnersRow, "owners", "0"),
  lists(Rules, "rules"),
  lists(OwnersRow, "owners"),

  rows(User, "user", "*", (key) => !key.startsWith("|")),
  rows(Directory, "user", "|directory"),
  rows(BootstrapMarker, "user", "|bootstrap"),
  rows(EarlierSession, "user", "|session|*"),
  rows(ApiToken, "user", "|token|*"),
  rows(Identity, "user", "|sso|*"),
  rows(Refusal, "user", "|refused|*"),
  lists(User, "user"),
  rows(Failures, "*", "*"),
  rows(Calls, "*", "*"),
  rows(IdempotencyKeys, "keys", "*"),
  rows(Configuration, "sso", "configuration"),
  lists(Configuration, "sso"),
  rows(Logins, "sso", "logins"),
  rows(secretRows("Sso"), "sso", "secret|*"),
  rows(Request, "requests", "*"),
  rows(UsedMessage, "assertions", "*"),
  rows(UsedMessage, "logouts", "*"),

  rows(Approvals, "approvals", "*", (key) => !isListKey(key)),
  lists(Approvals, "approvals"),
  rows(Proposals, "proposals", "*", (key) => !isListKey(key)),
  lists(Proposals, "proposals"),
  rows(SettingsRow, "settings", "overrides"),
  lists(SettingsRow, "settings"),
  rows(SubscriptionRow, "subscription", "*"),
  rows(LastScanRow, "scans", "last"),
  rows(FailedMessageRows, "failed", "*"),
  rows(LastDeliveries, "lastDeliveries", "*"),
  rows(Listed, "rows", "*"),
  rows(Summary, "summary", "summary"),
  rows(Walks, "walks", "*"),

  rows(applications.Applications, "apps", "a!*"),
  rows(applications.Applications, "apps", "n!*"),
  rows(applications.ObjectIds, "apps", "o!*"),
  rows(applications.Buckets, "apps", "b!*"),
  rows(applications.AppFences, "apps", "f!*"),
  rows(applications.States, "apps", "s!state"),
  ...runs(applications.Runs, "runs"),
  rows(b2c.TenantRows, "tenants", "t|*"),
  rows(b2c.Statuses, "tenants", "s|*"),
  rows(b2c.Notices, "tenants", "n|*"),
  rows(secretRows("B2c"), "tenants", "secret|*"),
  ...runs(b2c.Runs, "runs:*"),
  rows(AuditStreamRows, "streams", "stream|*"),
  rows(AuditStreamProgress, "streams", "progress|*"),
  rows(secretRows("AuditStreams"), "streams", "secret|*"),
  rows(DevopsSettings, "devops", "settings"),
  rows(ProofRow, "proofs|*", "*"),

  rows(keyRotation.Runs, "rotations", "r|*"),
  rows(keyRotation.ActiveRuns, "rotations", "u|*"),
  rows(rotation.WriterLeases, "rotations", "tenant"),
  ...["a|*", "s|*", "p|*", "b|*"].map((key) => rows(rotation.RotationSummaries, "rotations", key)),
  rows(rotation.RotationPointers, "rotations", "h|*"),
  rows(rotation.RotationEvents, "rotations", "e|*"),
  rows(SecretlessRuns, "secretless", "r|*"),
  rows(SecretlessPointers, "secretless", "u|*"),
  rows(MatchRows, "app:*", "*"),
  rows(MatchPointers, "secrets", "*"),
  rows(KeyLinks, "keyLinks", "*"),
  rows(Comparisons, "keyComparisons", "*"),
  rows(KeyLinkPointers, "linkedSecrets", "*"),
  rows(DatabaseLogins, "databaseLogins", "db-*"),
  rows(RegisteredUsers, "databaseLogins", "user|*"),
  ...runs(KeyLinkRuns, "keyLinkRuns"),
  rows(VaultIndexes, "vaults", "*"),
  rows(IndexStatus, "status", "status"),
  rows(Policies, "policies", "*"),
  rows(sync.Leases, "sync", "l|*"),
  rows(sync.Entries, "sync", "h|*"),
  rows(sync.Entries, "sync", "o|*"),
  rows(sync.Configurations, "sync", "p|*"),
  rows(sync.Notices, "sync", "n|*"),
  rows(secretRows("Sync"), "sync", "secret|*"),

  rows(dependencies.Edges, "dependencies", "e|*"),
  rows(dependencies.Resources, "dependencies", "r|*"),
  rows(dependencies.Units, "dependencies", "u|*"),
  rows(dependencies.UnitFences, "dependencies", "f|*"),
  rows(dependencies.NotSeenRows, "dependencies", "c|*"),
  rows(dependencies.UnresolvedRows, "dependencies", "o|*"),
  rows(dependencies.Outdated, "dependencies", "q|*"),
  ...runs(dependencies.Runs, "runs"),
  rows(dependencies.UnitWorks, "run:*", "*"),
  rows(usage.WorkspaceRows, "workspaces", "*"),
  rows(Endpoints, ENDPOINTS, "e|*"),
  rows(AuthorityRows, "authorities", "*", (key) => !key.startsWith("secret|")),
  rows(secretRows("CertificateRenewals"), "authorities", "secret|*"),
  rows(RenewalPolicies, "policies", "*"),
  rows(Schedules, "schedules", "*"),
  rows(Renewals, "renewals", "r|*"),
  rows(RenewalPointers, "renewals", "u|*"),
  rows(RenewalPointers, "renewals", "d|*"),
  rows(Budgets, "budgets", "*"),
  rows(Pauses, "pauses", "*"),
  rows(usage.AssetUses, "*", "a|*"),
  rows(usage.VaultUses, "*", "v|*", (_key, partition) => partition !== "unused"),
  rows(usage.SignIns, "*", "s|*"),
  rows(usage.UnexpectedReaders, "*", "n|*"),
  rows(usage.UsageFences, "*", "f"),
  rows(usage.ReportedUnused, "unused", "*"),
];

/** Partitions of a table that one walk reads. A large estate has thousands, for example one per vault. */
const MAX_PARTITIONS = 200;

/**
 * Reads all rows of these kinds, one request for each 1,000 rows of a kind. Kinds in several partitions also cost one request
 * for each partition of their table, of which at most `MAX_PARTITIONS` are read. An unreadable row in another partition is
 * reported when it is used.
 *
 * @param onCorrupt - Receives each row that can't be read.
 * @returns the number of rows that can be read.
 */
export async function readKinds(
  tables: Tables,
  kinds: readonly StoredKind[],
  onCorrupt: (kind: StoredKind, row: StorageCorrupt) => void,
): Promise<number> {
  let count = 0;
  const read = async (kind: StoredKind, partitionKey: string) => {
    const range = { ...rangeOf(kind, partitionKey), onCorrupt: (row: StorageCorrupt) => onCorrupt(kind, row) };
    for await (const page of tables.pages(kind.entity, range)) count += page.length;
  };
  for (const [table, ofTable] of Map.groupBy(kinds, ({ entity }) => entity.table)) {
    const inSeveralPartitions = ofTable.filter(({ partition }) => partition.endsWith("*"));
    for (const kind of ofTable) if (!inSeveralPartitions.includes(kind)) await read(kind, kind.partition);
    if (inSeveralPartitions.length === 0) continue;
    let partitions = 0;
    for await (const partitionKey of tables.partitions(table)) {
      for (const kind of inSeveralPartitions) if (matches(kind.partition, partitionKey)) await read(kind, partitionKey);
      if (++partitions === MAX_PARTITIONS) break;
    }
  }
  return count;
}

/** Returns whether a row is of this kind. */
export const isOfKind = ({ partition, key, isOfKind: accepts }: StoredKind, partitionKey: string, rowKey: string) =>
  matches(partition, partitionKey) && matches(key, rowKey) && accepts?.(rowKey, partitionKey) !== false;

const matches = (pattern: string, text: string): boolean =>
  pattern.endsWith("*") ? text.startsWith(pattern.slice(0, -1)) : text === pattern;

function rangeOf({ key, isOfKind: accepts }: StoredKind, partitionKey: string): Range {
  const prefix = key.endsWith("*") ? key.slice(0, -1) : undefined;
  return {
    partitionKey,
    // `!` sorts before all other characters of keys, so the range of a single key does not contain longer keys.
    ...(prefix === undefined
      ? { from: key, before: `${key}!` }
      : prefix !== "" && { from: prefix, before: keyEnd(prefix) }),
    ...(accepts && { only: (rowKey: string) => accepts(rowKey, partitionKey) }),
  };
}
