import * as z from "zod";
import { PageQuery, pageOf, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { queryBoolean } from "../shared/platform/http/query-boolean.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import {
  entryView,
  NewSyncRecord,
  ProviderChange,
  ProviderList,
  ProviderView,
  planView,
  providerParams,
  providerView,
  recordParams,
  recordQuery,
  recordView,
  SyncEntryView,
  SyncPlan,
  SyncRecordChange,
  SyncRecordView,
  SyncStatus,
  SyncTriggered,
  statusView,
  triggeredView,
} from "../shared/sync/api.ts";
import { PROVIDERS } from "../shared/sync/providers/providers.ts";
import { CONFIGURED_QUEUE, ConfiguredMessage, RUN_QUEUE, RunMessage } from "../shared/sync/record.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of sync. A sync record copies the value of a vault secret (the source) to a target:
 * another key vault or another provider, such as AWS. It copies the value again when the source changes.
 */

const tag = "Sync";
const RECORDS = "api/automation/sync/records";
const PROVIDERS_ROUTE = "api/automation/sync/providers";
const READABLE_WITHOUT_LICENSE =
  "Without a PRO license, existing records can still be read; if there are none, returns 403.";

const createRecord = endpoint({
  name: "createSyncRecord",
  method: "POST",
  route: RECORDS,
  summary: "Create a sync record that copies a secret to another provider",
  description:
    "The record runs at once, then on its schedule, and whenever the service learns of a new version. Each target can have one record (409). A copy can't be copied further (409 syncLoop). The service's own key vault can't be used (409 serviceVault).",
  tag,
  access: "admin",
  tier: "pro",
  body: NewSyncRecord,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require.
  guarded: () => true,
  problems: ["alreadyExists", "serviceVault", "syncLoop"],
  example: {
    body: {
      sourceVault: "kv-payments-prod",
      sourceSecret: "stripe-api-key",
      targetProvider: "aws",
      targetService: "secretsmanager",
      targetName: "payments/stripe-api-key",
      targetRegion: "eu-west-1",
      scheduleHours: 24,
      enabled: false,
    },
  },
  responds: { 201: SyncRecordView },
  repeat: {
    idOf: ({ recordId }) => recordId,
    answer: async ({ id, services }) => recordView(await services.sync.get(id)),
  },
  handle: async ({ body, caller, services }) => {
    const record = await services.sync.records.create(body, caller);
    return created(recordView(record), `/${RECORDS}/${record.recordId}`);
  },
});

const listRecords = endpoint({
  name: "listSyncRecords",
  method: "GET",
  route: RECORDS,
  summary: "List sync records in creation order",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  query: recordQuery,
  problems: ["licenseRequired"],
  responds: { 200: pageOf(SyncRecordView, "SyncRecordList") },
  handle: async ({ query, services }) => {
    const { state, target_provider: targetProvider, source_vault: sourceVault, source_secret: sourceSecret } = query;
    const filter = { state, targetProvider, sourceVault, sourceSecret };
    const page = await services.sync.list(filter, pageRequest(query));
    return ok(pageView(page, recordView));
  },
});

const getRecord = endpoint({
  name: "getSyncRecord",
  method: "GET",
  route: `${RECORDS}/{record_id}`,
  summary: "Get a sync record",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  params: recordParams,
  problems: ["conflict", "licenseRequired"],
  responds: { 200: SyncRecordView },
  handle: async ({ params, services }) => resource(recordView(await services.sync.get(params.record_id))),
});

const updateRecord = endpoint({
  name: "updateSyncRecord",
  method: "PUT",
  route: `${RECORDS}/{record_id}`,
  summary: "Update or pause a sync record",
  description: "Accepts any subset of the fields; source and target can't be changed. An enabled record runs at once.",
  tag,
  access: "admin",
  tier: "pro",
  params: recordParams,
  body: SyncRecordChange,
  // Each of these changes can make a record copy the value that did not copy it before, because it was disabled or had failed.
  guarded: ({ body }) => body.enabled === true || body.confirmVaults === true || body.adopt === true,
  conditional: true,
  problems: ["conflict"],
  example: { body: { scheduleHours: 24 } },
  responds: { 200: SyncRecordView },
  handle: async ({ params, body, caller, ifMatch, services }) =>
    resource(recordView(await services.sync.records.change(params.record_id, body, caller, ifMatch))),
});

const deleteRecord = endpoint({
  name: "deleteSyncRecord",
  method: "DELETE",
  route: `${RECORDS}/{record_id}`,
  summary: "Delete a sync record",
  description: `The target is kept, unless removeTarget is true. This call also removes records that were tampered with, for which other calls return 409. The history is kept for its retention period. ${READABLE_WITHOUT_LICENSE}`,
  tag,
  access: "admin",
  tier: "core",
  params: recordParams,
  query: z.strictObject({
    removeTarget: queryBoolean().optional().meta({
      default: false,
      description:
        "`true` also deletes the target: recoverably if the provider supports it, and only if this record owns the target.",
    }),
  }),
  conditional: true,
  problems: ["conflict", "licenseRequired"],
  responds: { 200: Deleted },
  handle: async ({ params, query, caller, ifMatch, services }) => {
    await services.sync.remove(params.record_id, query.removeTarget === true, ifMatch, caller);
    return deleted();
  },
});

const runRecord = endpoint({
  name: "runSyncRecord",
  method: "POST",
  route: `${RECORDS}/{record_id}/sync`,
  summary: "Run a sync record now",
  description: "Returns once the run is queued; GET …/status follows it.",
  tag,
  access: "operator",
  tier: "pro",
  params: recordParams,
  problems: ["conflict"],
  responds: { 202: SyncTriggered },
  repeat: {
    idOf: ({ recordId }) => recordId,
    answer: async ({ id, services }) => triggeredView(await services.sync.get(id)),
  },
  handle: async ({ params, caller, services }) => ({
    status: 202,
    json: triggeredView(await services.sync.trigger(params.record_id, caller)),
  }),
});

const planRecord = endpoint({
  name: "planSyncRecord",
  method: "POST",
  route: `${RECORDS}/{record_id}/plan`,
  summary: "Preview a run of a sync record",
  description: "Inspects source and target like a run does, without reading or writing values.",
  tag,
  access: "operator",
  tier: "pro",
  params: recordParams,
  problems: ["conflict"],
  harmlessRepeat: true,
  responds: { 200: SyncPlan },
  handle: async ({ params, services }) => ok(planView(params.record_id, await services.sync.plan(params.record_id))),
});

const getStatus = endpoint({
  name: "getSyncRecordStatus",
  method: "GET",
  route: `${RECORDS}/{record_id}/status`,
  summary: "Get the status of a sync record",
  description: READABLE_WITHOUT_LICENSE,
  tag,
  access: "user",
  tier: "core",
  params: recordParams,
  problems: ["conflict", "licenseRequired"],
  responds: { 200: SyncStatus },
  handle: async ({ params, services }) => {
    const { record, running } = await services.sync.status(params.record_id);
    return resource(statusView(record, running));
  },
});

const listHistory = endpoint({
  name: "listSyncRecordHistory",
  method: "GET",
  route: `${RECORDS}/{record_id}/history`,
  summary: "List the history of a sync record, newest first",
  description: `Runs that found nothing to do are not listed. ${READABLE_WITHOUT_LICENSE}`,
  tag,
  access: "user",
  tier: "core",
  params: recordParams,
  query: PageQuery,
  problems: ["conflict", "licenseRequired"],
  responds: { 200: pageOf(SyncEntryView, "SyncHistory") },
  handle: async ({ params, query, services }) => {
    const page = await services.sync.history(params.record_id, pageRequest(query));
    return ok(pageView(page, entryView));
  },
});

const configureProvider = endpoint({
  name: "configureSyncProvider",
  method: "POST",
  route: `${PROVIDERS_ROUTE}/{provider}`,
  summary: "Configure a sync provider",
  description:
    "The credentials are tested first, without side effects, and rejected (400) if they don't work. They are stored in the service's key vault (409 if there is none). Records that failed because of missing credentials run at once.",
  tag,
  access: "admin",
  tier: "pro",
  params: providerParams,
  body: ProviderChange,
  guarded: () => true,
  conditional: true,
  problems: ["notFound", "conflict"],
  example: { params: { provider: "azure" }, body: {} },
  harmlessRepeat: true,
  responds: { 200: ProviderView },
  handle: async ({ params: { provider }, body, caller, ifMatch, services }) =>
    ok(providerView(provider, await services.sync.configurations.save(provider, body, ifMatch, caller))),
});

const listProviders = endpoint({
  name: "listSyncProviders",
  method: "GET",
  route: PROVIDERS_ROUTE,
  summary: "List sync providers and their configuration status",
  tag,
  access: "admin",
  tier: "pro",
  responds: { 200: ProviderList },
  handle: async ({ services }) => {
    const configurations = await services.sync.configurations.all();
    const items = PROVIDERS.map(({ id }) =>
      providerView(
        id,
        configurations.find(({ provider }) => provider === id),
      ),
    );
    return ok({ items });
  },
});

const getProvider = endpoint({
  name: "getSyncProvider",
  method: "GET",
  route: `${PROVIDERS_ROUTE}/{provider}`,
  summary: "Get a sync provider",
  tag,
  access: "admin",
  tier: "pro",
  params: providerParams,
  responds: { 200: ProviderView },
  handle: async ({ params: { provider }, services }) =>
    ok(providerView(provider, await services.sync.configurations.find(provider))),
});

const deleteProvider = endpoint({
  name: "deleteSyncProvider",
  method: "DELETE",
  route: `${PROVIDERS_ROUTE}/{provider}`,
  summary: "Remove the configuration of a sync provider",
  description:
    "The sync records stay and fail until the provider is configured again. The credentials are deleted from the key vault within two days.",
  tag,
  access: "admin",
  tier: "pro",
  params: providerParams,
  conditional: true,
  example: { params: { provider: "azure" } },
  responds: { 200: Deleted },
  handle: async ({ params: { provider }, caller, ifMatch, services }) => {
    await services.sync.configurations.remove(provider, ifMatch, caller);
    return deleted();
  },
});

export const endpoints = [
  createRecord,
  listRecords,
  getRecord,
  updateRecord,
  deleteRecord,
  runRecord,
  planRecord,
  getStatus,
  listHistory,
  configureProvider,
  listProviders,
  getProvider,
  deleteProvider,
];

export const timers = [
  timer({
    name: "runDueSyncs",
    schedule: { setting: "SYNC_SCHEDULE" },
    handle: ({ services }) => services.sync.sendDueRecords(),
  }),
  timer({
    name: "cleanUpSync",
    schedule: "0 47 3 * * *",
    handle: ({ services, requestId }) => services.sync.cleanUp({ actor: "system", requestId }),
  }),
];

export const queues = [
  queue({
    name: "runSync",
    queue: RUN_QUEUE,
    message: RunMessage,
    handle: ({ recordId }, { services }) => services.sync.run(recordId),
  }),
  poison({
    name: "runSyncFailed",
    of: RUN_QUEUE,
    message: RunMessage,
    handle: ({ recordId }, { services }) => services.sync.failRun(recordId),
  }),
  queue({
    name: "syncConfigured",
    // A message says that a provider has a new configuration. Its failed records then run again.
    queue: CONFIGURED_QUEUE,
    message: ConfiguredMessage,
    handle: ({ provider }, { services }) => services.sync.retryFailedRecords(provider),
  }),
  poison({
    name: "syncConfiguredFailed",
    of: CONFIGURED_QUEUE,
    message: ConfiguredMessage,
    // The records run again by their schedules.
  }),
];
