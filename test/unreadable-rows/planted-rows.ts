import { ApiToken } from "../../shared/access/api-tokens.ts";
import { EarlierSession } from "../../shared/access/earlier-sessions.ts";
import { Identity, Refusal, USERS_PARTITION } from "../../shared/access/user.ts";
import { AcknowledgementRows } from "../../shared/alerts/acknowledgements.ts";
import { OwnersRow } from "../../shared/alerts/owners.ts";
import { RestoreMarkers } from "../../shared/alerts/restore-marker.ts";
import { TABLE as APPLICATIONS, Runs as ApplicationRuns } from "../../shared/applications/application.ts";
import { APPROVALS, Approvals } from "../../shared/approvals/approval.ts";
import { KEYS_PARTITION, PURGES_PARTITION, RecordRow, ROLLBACK } from "../../shared/audit/rows.ts";
import * as b2c from "../../shared/b2c/tenant.ts";
import { AUTHORITIES, AuthorityRows, DEFAULT_BUDGET } from "../../shared/certificate-renewal/authority.ts";
import { BUDGETS, Budgets, budgetKey, PAUSES, Pauses } from "../../shared/certificate-renewal/budgets.ts";
import {
  policyKey,
  POLICIES as RENEWAL_POLICIES,
  Policies as RenewalPolicies,
  SCHEDULES,
  Schedules,
} from "../../shared/certificate-renewal/policy.ts";
import { RENEWALS, RenewalPointers, Renewals, stepsOf } from "../../shared/certificate-renewal/renewal.ts";
import { dueKey, recordKey, unfinishedKey } from "../../shared/certificate-renewal/rows.ts";
import { addedKey, ENDPOINTS, Endpoints } from "../../shared/certificates/endpoint.ts";
import * as compliance from "../../shared/compliance/compliance-rows.ts";
import * as usage from "../../shared/dependencies/logs/rows.ts";
import * as dependencies from "../../shared/dependencies/rows.ts";
import { ProofRow } from "../../shared/devops/connection-proofs.ts";
import { DEVOPS, SettingsRow as DevopsSettings, SETTINGS } from "../../shared/devops/settings.ts";
import { RESCANS, RescanRows } from "../../shared/discovery/rescan-rows.ts";
import * as scans from "../../shared/discovery/scan.ts";
import { PendingWrites, pendingPrefix, RemovedVaults, removedKey, VAULTS } from "../../shared/inventory/vault.ts";
import * as keyRotation from "../../shared/key-rotation/run.ts";
import { FailedMessageRows, LastDeliveries } from "../../shared/messages/failed-messages.ts";
import { IDEMPOTENCY_KEYS, IdempotencyKeys } from "../../shared/platform/http/idempotency.ts";
import { activeRuns, runKey } from "../../shared/platform/runs/run-store.ts";
import { pack } from "../../shared/platform/storage/packed-members.ts";
import { put, type Tables } from "../../shared/platform/storage/tables.ts";
import { newestFirst } from "../../shared/platform/ulid.ts";
import { PROPOSALS, Proposals } from "../../shared/proposals/proposal.ts";
import {
  DATABASE_LOGINS,
  DatabaseLogins,
  RegisteredUsers,
} from "../../shared/rotation/database-logins/registrations.ts";
import { Status, VaultIndexes } from "../../shared/rotation/match-index.ts";
import { POLICIES, Policies } from "../../shared/rotation/policy.ts";
import { RUNS as KEY_LINK_RUNS, Runs as KeyLinkRuns } from "../../shared/rotation/resource-keys/discovery-run.ts";
import {
  COMPARISONS,
  Comparisons,
  comparisonKey,
  KEY_LINKS,
  KeyLinkPointers,
  KeyLinks,
  LINKED_SECRETS,
  linkKey,
} from "../../shared/rotation/resource-keys/links.ts";
import { ROTATIONS, RotationEvents, RotationPointers } from "../../shared/rotation/rotation.ts";
import { RUNS, SecretlessPointers, SecretlessRuns } from "../../shared/rotation/secretless-run.ts";
import { secretRows } from "../../shared/secrets/stored-secrets.ts";
import {
  Progress as AuditStreamProgress,
  Streams as AuditStreamRows,
  progressKey,
  STREAMS,
  streamKey,
} from "../../shared/siem/stream.ts";
import { Configuration, Logins, SSO, UNCONFIGURED } from "../../shared/sso/configuration.ts";
import { Request } from "../../shared/sso/sign-in-requests.ts";
import { UsedMessage } from "../../shared/sso/used-messages.ts";
import * as sync from "../../shared/sync/record.ts";
import { Listed, Summary } from "../../shared/unreadable-rows/unreadable-rows.ts";

/**
 * Rows of the kinds that a recorded store lacks, as the service writes them. Keys with a prefix such as `|token|` or `e|` are those
 * of the service: the prefix names the kind of row.
 */

const ID = "01M83W0CN6SDG6BGCAGDABN0C3";
const GUID = "aaaaaaaa-0000-4000-8000-000000000001";
/** Times before and after every time of the test: `SINCE` is long over, `UNTIL` is not reached. */
const SINCE = "2026-11-20T10:00:00.000Z";
const UNTIL = "2026-12-20T10:00:00.000Z";
const CHANGED = { updatedAt: SINCE, updatedBy: "admin" };
const CREATED = { createdAt: SINCE, createdBy: "admin", ...CHANGED };
const REQUEST = { runId: ID, requestedBy: "admin", requestId: "planted", createdAt: SINCE, finishedAt: SINCE };
const RUN = { ...REQUEST, trigger: "api" as const, status: "completed" as const, failures: [] };

/** Writes one or more rows of each missing kind. `scanId` names a scan that has ended. */
export async function plantRows(tables: Tables, { scanId, vaultName }: { scanId: string; vaultName: string }) {
  await plantScansAndResults(tables, scanId, vaultName);
  await plantUsers(tables);
  await plantAlerts(tables);
  await plantAutomation(tables, vaultName);
  await plantDependencies(tables, vaultName);
  await plantEndpoint(tables, vaultName);
  await plantUsage(tables, vaultName);
}

/** Writes rows that the daily cleanup or a walk removes. */
export async function plantLateRows(tables: Tables, vaultName: string): Promise<void> {
  const acknowledgement = { ruleId: ID, itemId: "kv.secret.one", since: SINCE, acknowledgedAt: SINCE };
  await tables.put(AcknowledgementRows, "acknowledgements", `${ID}|a!kv!secret!one`, {
    ...acknowledgement,
    acknowledgedBy: "admin",
  });
  await tables.put(compliance.ChangedRows, compliance.STATE, compliance.changedVaultKey(vaultName), { unknown: true });
  await tables.put(Summary, "summary", "summary", { recordedAt: SINCE });
  const row = { table: "Planted", partition: "planted", key: "planted", version: "1", reason: "planted" };
  await tables.put(Listed, "rows", "planted", { ...row, reportedAt: SINCE, auditId: ID, audited: true });
}

async function plantScansAndResults(tables: Tables, scanId: string, vaultName: string): Promise<void> {
  const partition = scans.scanPartition(scanId);
  const planned = { name: vaultName, subscriptionId: GUID, action: "remove" } as const;
  await tables.put(scans.PlannedVaults, partition, scans.waitingKey("900000"), planned);
  await tables.put(scans.PlannedVaults, partition, scans.claimedKey("900001"), planned);
  await tables.put(scans.FirstScans, scans.FIRST, scans.FIRST, { scanId, started: true });
  const want = { at: SINCE, fromVault: false };
  const rescan = { vaultName: "kv-absent", subscriptionId: GUID, want, dueAt: UNTIL, failures: 0 };
  await tables.put(RescanRows, RESCANS, "kv-absent", rescan);
  await tables.put(PendingWrites, VAULTS, `${pendingPrefix(vaultName)}000`, { entries: pack([]) });
  await tables.put(RemovedVaults, VAULTS, removedKey("kv-absent"), { listedAt: SINCE });
  const evaluation = { evaluationId: ID, requestedAt: SINCE, requestedBy: "admin", vaults: 0, failedVaults: [] };
  await tables.put(compliance.Evaluations, compliance.STATE, compliance.EVALUATION_KEY, evaluation);
  await tables.put(compliance.Evaluations, compliance.EVALUATIONS, ID, evaluation);
  const day = { date: "2026-11-20", score: 90, passed: 9, failed: 1, total: 10 };
  await tables.put(compliance.DayScores, compliance.HISTORY, day.date, day);
}

async function plantUsers(tables: Tables): Promise<void> {
  const times = { createdAt: SINCE, idleEndsAt: UNTIL, endsAt: UNTIL };
  await tables.put(EarlierSession, USERS_PARTITION, "|session|reader|planted", { uid: GUID, ...times, by: "password" });
  const token = { user: "reader", name: "planted", role: "user", createdAt: SINCE, expiresAt: UNTIL } as const;
  await tables.put(ApiToken, USERS_PARTITION, "|token|planted", token);
  await tables.put(Identity, USERS_PARTITION, "|sso|planted", { user: "reader", refused: true });
  const identity = { issuer: "https://issuer.example", subject: "one", username: "one" };
  const refusal = { ...identity, refusedAt: SINCE, refusedBy: "admin" };
  await tables.put(Refusal, USERS_PARTITION, "|refused|planted", refusal);
  await tables.put(Configuration, SSO, "configuration", { ...UNCONFIGURED, generation: "1", revision: "1" });
  await tables.put(Logins, SSO, "logins", { total: 1, lastAt: SINCE });
  await tables.put(secretRows("Sso"), SSO, `secret|${ID}`, { since: UNTIL });
  const asked = { summary: "Create an API token", method: "POST", path: "/auth/tokens", details: {}, digest: "00" };
  const requester = { requestedBy: "admin", requesterId: GUID, createdAt: SINCE, expiresAt: UNTIL, writeId: ID };
  await tables.put(Approvals, APPROVALS, ID, { state: "pending", ...asked, ...requester });
  const proposed = {
    endpoint: "removeAllOverrides",
    summary: "Remove all overrides",
    params: {},
    query: {},
    dryRun: "{}",
  };
  const proposal = {
    ...proposed,
    method: "DELETE",
    path: "/api/settings/all",
    reason: "None",
    proposedBy: "admin",
    proposerId: GUID,
  };
  const proposedAt = { createdAt: SINCE, expiresAt: UNTIL, writeId: ID };
  await tables.put(Proposals, PROPOSALS, ID, { state: "pending", ...proposal, ...proposedAt });
  const keyed = { state: "done", request: "00", requestId: "planted", startedAt: UNTIL, writeId: ID } as const;
  await tables.put(IdempotencyKeys, IDEMPOTENCY_KEYS, "planted", { ...keyed, status: 201, resourceId: ID });
  const request = { protocol: "oidc", cookieHash: "00", returnUrl: "/", generation: "1", expiresAt: UNTIL } as const;
  await tables.put(Request, "requests", "planted", request);
  for (const partition of ["assertions", "logouts"])
    await tables.put(UsedMessage, partition, "planted", { endsAt: UNTIL });
}

async function plantAlerts(tables: Tables): Promise<void> {
  await tables.put(RestoreMarkers, "restore", "restore", { copiedAt: SINCE, restoredAt: SINCE, caughtUpAt: SINCE });
  await tables.put(OwnersRow, "owners", "0", { addresses: {}, names: {}, ...CHANGED });
  const message = { queue: "scan-plan", messageId: "planted", failedAt: SINCE, readable: false };
  await tables.put(FailedMessageRows, "failed", "8000000000000|planted", message);
  await tables.put(LastDeliveries, "lastDeliveries", "planted", { queue: "scan-plan", startedAt: UNTIL });
  for (const partition of [PURGES_PARTITION, KEYS_PARTITION, ROLLBACK])
    await tables.put(RecordRow, partition, "planted", { record: "planted" });
}

async function plantAutomation(tables: Tables, vaultName: string): Promise<void> {
  const { TENANTS } = b2c;
  await tables.put(b2c.TenantRows, TENANTS, b2c.tenantKey(GUID), {
    tenantId: GUID,
    tenantDomain: "one.onmicrosoft.com",
    displayName: "One",
    clientId: GUID,
    clientSecret: { id: ID, version: "1" },
    autoDiscover: false,
    discoveryIntervalHours: 24,
    ...CREATED,
  });
  await tables.put(b2c.Statuses, TENANTS, b2c.statusKey(GUID), { tenantType: "b2c", attemptedAt: SINCE });
  await tables.put(b2c.Notices, TENANTS, b2c.LICENCE_NOTICE, { day: "2026-11-20" });
  await tables.put(secretRows("B2c"), TENANTS, `secret|${ID}`, { since: UNTIL });
  const tenantRuns = b2c.runsOf(GUID).partitionKey;
  await tables.put(b2c.Runs, tenantRuns, runKey(ID), { ...RUN, tenantId: GUID, attempts: 1 });
  await tables.put(activeRuns("B2c"), tenantRuns, "active", { runId: ID });
  await tables.put(activeRuns(APPLICATIONS), "runs", "active", { runId: ID });
  await tables.put(ApplicationRuns, "runs", runKey(ID), { ...RUN, mode: "full", attempts: 1 });

  const key = { resourceId: "/subscriptions/one", keyKind: "storage", keyName: "key1", version: "1" };
  const link = { vaultId: "/vaults/one", vaultName, secretName: "one", ...key, comparedAt: SINCE, by: "admin" };
  await tables.put(KeyLinks, KEY_LINKS, linkKey(link), link);
  const comparison = { resourceId: key.resourceId, since: SINCE, hasUnread: false };
  await tables.put(Comparisons, COMPARISONS, comparisonKey(key.resourceId), comparison);
  await tables.put(KeyLinkPointers, LINKED_SECRETS, `${vaultName}|one|planted`, { resourceId: key.resourceId });
  const serverId = `/subscriptions/${GUID}/resourceGroups/one/providers/Microsoft.DBforPostgreSQL/flexibleServers/one`;
  const { vaultId, secretName, version, comparedAt, by } = link;
  const loginPlace = { vaultId, vaultName, secretName, user: "one_a", version, comparedAt, by };
  const loginId = `db-${"0".repeat(32)}`;
  await tables.put(DatabaseLogins, DATABASE_LOGINS, loginId, {
    credentialId: loginId,
    serverId,
    database: "one",
    users: ["one_a", "one_b"],
    signInAs: "lifecycle",
    places: [loginPlace],
    registeredAt: SINCE,
    registeredBy: "admin",
  });
  await tables.put(RegisteredUsers, DATABASE_LOGINS, "user|planted", { credentialId: loginId });
  const counts = { resources: 1, resourcesDenied: 0, secrets: 1, secretsDenied: 0, links: 1, removed: 0 };
  await tables.put(KeyLinkRuns, KEY_LINK_RUNS, runKey(ID), { ...RUN, ...counts, attempts: 1 });
  await tables.put(activeRuns(KeyLinkRuns.table), KEY_LINK_RUNS, "active", { runId: ID });

  const vaultKey = { vaultName, vaultUri: "https://one.vault.localhost", vaultId: "/vaults/one", name: "one" };
  const { KEY_ROTATIONS } = keyRotation;
  await tables.put(keyRotation.Runs, KEY_ROTATIONS, keyRotation.runKey(ID), {
    ...vaultKey,
    runId: ID,
    requestedBy: "admin",
    requestId: "planted",
    createdAt: SINCE,
    dueAt: UNTIL,
    status: "waiting",
    subscriptionId: GUID,
    oldVersion: "0".repeat(32),
    newVersion: "1".repeat(32),
    rotatedAt: SINCE,
    consumers: [],
    failures: 0,
  });
  await tables.put(keyRotation.ActiveRuns, KEY_ROTATIONS, keyRotation.activeKey(vaultKey), { runId: ID });
  const at = { createdAt: SINCE, createdBy: "admin", updatedAt: SINCE, updatedBy: "admin" };
  await tables.put(AuditStreamRows, STREAMS, streamKey(ID), {
    streamId: ID,
    name: "planted",
    destination: "eventHubs",
    content: ["audit", "violations"],
    enabled: false,
    endpoint: "https://evhns-lifecycle.servicebus.localhost",
    eventHub: "audit",
    ...at,
  });
  await tables.put(AuditStreamProgress, STREAMS, progressKey(ID), {
    streamId: ID,
    audit: { interval: "2026-11-21T10:00Z", entries: 0 },
    violations: { key: "0!2026-11-21T10:00:00.000Z", index: 0 },
    sent: 0,
    failures: 0,
  });
  await tables.put(secretRows("AuditStreams"), STREAMS, `secret|${ID}`, { since: UNTIL });

  await tables.put(DevopsSettings, DEVOPS, SETTINGS, { projectIds: [], copies: [], revision: "1", ...CHANGED });
  const proof = { appId: GUID, tenantId: GUID, provedAt: SINCE };
  await tables.put(ProofRow, "proofs|planted", `${GUID}|${GUID}`, proof);

  const summary = {
    rotationId: ID,
    assetId: `${vaultName}.secret.one`,
    status: "completed",
    automatic: false,
  } as const;
  const event = { ...summary, requestedBy: "admin", createdAt: SINCE, needsConfirmation: false, at: SINCE };
  await tables.put(RotationEvents, ROTATIONS, `e|${ID}`, event);
  await tables.put(RotationPointers, ROTATIONS, `h|${ID}`, { rotationId: ID });
  await tables.put(SecretlessPointers, RUNS, `u|${GUID}`, { runId: ID });
  await tables.transaction(SecretlessRuns.table, RUNS, [
    put(SecretlessRuns, `r|${newestFirst(ID)}`, {
      runId: ID,
      appId: GUID,
      objectId: GUID,
      tenantId: GUID,
      appName: "One",
      keyId: GUID,
      idleDays: 35,
      status: "needsAttention",
      plan: "planted",
      consumers: [],
      credentials: [],
      connections: [],
      steps: [{ name: "check", status: "failed", attempts: 1 }],
      notes: [],
      requestedBy: "admin",
      requestId: ID,
      createdAt: SINCE,
      dueAt: SINCE,
      failures: 0,
      writeId: ID,
    }),
  ]);
  const index = { contents: "planted", builtAt: SINCE, keys: pack([]) };
  await tables.put(VaultIndexes, "vaults", vaultName, index);
  await tables.put(Status, "status", "status", { at: SINCE, vaults: 1, waiting: 0 });
  await tables.put(Policies, POLICIES, GUID, {
    appId: GUID,
    appName: "One",
    automatic: false,
    overlapDays: 7,
    updateKeyVaults: true,
    targets: [],
    ...CHANGED,
  });

  const certificate = { vaultName, vaultId: "/vault", certificate: "one", assetId: `${vaultName}.certificate.one` };
  const accountKey = { id: `${ID}-planted`, version: "1" };
  await tables.put(secretRows(AuthorityRows.table), AUTHORITIES, `secret|${accountKey.id}`, { since: SINCE });
  await tables.put(AuthorityRows, AUTHORITIES, ID, {
    authorityId: ID,
    name: "One",
    directoryUrl: "https://one.example/directory",
    contacts: [],
    ...DEFAULT_BUDGET,
    accountKey,
    accountUrl: "https://one.example/account/1",
    createdAt: SINCE,
    ...CHANGED,
  });
  await tables.put(RenewalPolicies, RENEWAL_POLICIES, policyKey(certificate.assetId), {
    ...certificate,
    automatic: false,
    trigger: "lifetimeShare",
    lifetimeShare: 67,
    key: { keyType: "RSA", keySize: 2048, reuseKey: false },
    ...CHANGED,
  });
  await tables.put(Schedules, SCHEDULES, policyKey(certificate.assetId), {
    assetId: certificate.assetId,
    version: "1",
    windowStart: 0,
    windowEnd: 0,
    checkAgainAt: 0,
    failures: 0,
    notBefore: 0,
  });
  await tables.put(Renewals, RENEWALS, recordKey(ID), {
    ...certificate,
    runId: ID,
    kind: "renew",
    method: "acme",
    automatic: false,
    dnsNames: [],
    exportable: true,
    tags: {},
    status: "completed",
    steps: stepsOf("acme"),
    challenges: [],
    failures: 0,
    dueAt: UNTIL,
    createdAt: SINCE,
    requestedBy: "admin",
    requestId: ID,
    endedAt: SINCE,
    writeId: ID,
  });
  await tables.put(RenewalPointers, RENEWALS, unfinishedKey(certificate.assetId), { runId: ID });
  await tables.put(RenewalPointers, RENEWALS, dueKey({ runId: ID, dueAt: UNTIL }), { runId: ID });
  await tables.put(Budgets, BUDGETS, budgetKey(ID, "one.example"), { uses: [] });
  await tables.put(Pauses, PAUSES, ID, { until: SINCE });

  const { SYNC } = sync;
  await tables.put(sync.Leases, SYNC, sync.leaseKey(ID), { owner: "planted", free: true });
  const configuration = { provider: "azure", settings: {}, secretsSet: [], revision: "1", checkedAt: SINCE };
  await tables.put(sync.Configurations, SYNC, sync.configurationKey("azure"), {
    ...configuration,
    createdAt: SINCE,
    ...CHANGED,
  });
  await tables.put(sync.Notices, SYNC, sync.LICENCE_NOTICE, { day: "2026-11-20" });
  await tables.put(secretRows("Sync"), SYNC, `secret|${ID}`, { since: UNTIL });
}

async function plantDependencies(tables: Tables, vaultName: string): Promise<void> {
  const { DEPENDENCIES, unitKey } = dependencies;
  const [source, unit] = ["azure", GUID];
  const key = unitKey(source, unit);
  const resource = { id: `/subscriptions/${GUID}/sites/one`, kind: "webApp", name: "one" } as const;
  const hash = dependencies.resourceHash(key, resource.id);
  const use = { vaultName, type: "secret", name: "one", resource, strength: "references", evidence: "ONE" } as const;
  const edge = { ...use, refresh: { how: "blind" }, unit: key, toldAt: SINCE } as const;
  const rowKey = dependencies.edgeKey(edge, hash);
  await tables.put(dependencies.Edges, DEPENDENCIES, rowKey, edge);
  await tables.put(dependencies.Resources, DEPENDENCIES, dependencies.resourceKey(key, hash), {
    id: resource.id,
    hash: "planted",
    edges: dependencies.packEdges(new Map([[rowKey, -1]])),
    count: 1,
  });
  await tables.put(dependencies.Units, DEPENDENCIES, dependencies.unitRowKey(key), {
    source,
    unit,
    resources: 1,
    edges: 1,
    notSeen: 1,
    notSeenLeftOut: 0,
  });
  const fence = { owner: "planted", sequence: 1, open: false };
  await tables.put(dependencies.UnitFences, DEPENDENCIES, dependencies.fenceKey(key), fence);
  const notSeen = { scope: unit, code: "accessDenied", message: "No.", remedy: "Yes.", source, unit, since: SINCE };
  await tables.put(dependencies.NotSeenRows, DEPENDENCIES, dependencies.notSeenKey(key, notSeen), notSeen);
  const unresolved = { id: "planted", at: SINCE, edge: rowKey };
  await tables.put(dependencies.UnresolvedRows, DEPENDENCIES, dependencies.UNRESOLVED + ID, unresolved);
  const outdated = dependencies.assetOfEdge(rowKey);
  await tables.put(dependencies.Outdated, DEPENDENCIES, dependencies.outdatedKey(outdated), outdated);
  await tables.put(dependencies.Runs, dependencies.RUNS, runKey(ID), { ...RUN, mode: "full" });
  await tables.put(activeRuns(dependencies.TABLE), dependencies.RUNS, "active", { runId: ID });
  const work = { source, unit, action: "read", status: "done", attempts: 1 } as const;
  await tables.put(dependencies.UnitWorks, dependencies.runPartition(ID), dependencies.workKey(ID, 0), work);
}

async function plantEndpoint(tables: Tables, vaultName: string): Promise<void> {
  const certificate = { vaultName, name: "one" };
  await tables.put(Endpoints, ENDPOINTS, addedKey(certificate, 0), {
    ...certificate,
    host: "one.example",
    port: 443,
    platform: "other",
    addedAt: SINCE,
    addedBy: "admin",
  });
}

async function plantUsage(tables: Tables, vaultName: string): Promise<void> {
  const workspaceId = GUID;
  const workspace = { workspaceId, askedHour: SINCE, readFrom: SINCE, readTo: SINCE, failures: 0 };
  await tables.put(usage.WorkspaceRows, usage.WORKSPACES, workspaceId, workspace);
  const asset = { vaultName, type: "secret", name: "one" } as const;
  const reader = { id: GUID, operations: ["SecretGet"], lastAt: SINCE, days: [], versions: [] };
  const use = { ...asset, lastAt: SINCE, readers: pack([reader]) };
  await tables.put(usage.AssetUses, workspaceId, usage.assetUseKey(asset), use);
  await tables.put(usage.VaultUses, workspaceId, usage.vaultUseKey(vaultName), {
    vaultName,
    since: SINCE,
    lastAt: SINCE,
  });
  const signIn = { appId: GUID, keyId: GUID, name: "One", lastAt: SINCE };
  await tables.put(usage.SignIns, workspaceId, usage.signInKey(GUID, GUID), signIn);
  const unexpected = { at: SINCE, ...asset, readerId: GUID, reader: "one", operations: ["SecretGet"] };
  await tables.put(usage.UnexpectedReaders, workspaceId, usage.UNEXPECTED_PREFIX + ID, unexpected);
  const fence = { owner: "planted", sequence: 1, open: false };
  await tables.put(usage.UsageFences, workspaceId, usage.FENCE_KEY, fence);
  const reported = { lookedOn: "2026-11-20", assets: pack([]) };
  await tables.put(usage.ReportedUnused, usage.UNUSED, usage.vaultUseKey(vaultName), reported);
}
