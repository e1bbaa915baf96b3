import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { shownAddress } from "../shared/platform/outgoing/webhooks.ts";
import {
  AuditStream,
  AuditStreamChange,
  AuditStreamList,
  AuditStreamTest,
  AuditStreamWithSecret,
  changedStreamView,
  NewAuditStream,
  streamParams,
  streamView,
  testView,
} from "../shared/siem/api.ts";
import type { StreamRecord, StreamState } from "../shared/siem/stream.ts";
import { endpoint, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints and the timer of audit streams. A stream sends the audit log, its digests and changes of violations to a SIEM, at
 * least once and in order.
 */

const tag = "Audit";
const route = "audit/streams";

const stateOf = async ({ auditStreams }: Services, stream: StreamRecord): Promise<StreamState> =>
  (await auditStreams.states([stream]))[0]!;

const listStreams = endpoint({
  name: "listAuditStreams",
  method: "GET",
  route,
  summary: "List audit streams with their state and lag",
  description: "Returns at most ten streams, oldest first.",
  tag,
  access: "admin",
  tier: "core",
  // The lag changes without a change of the streams.
  versioned: false,
  responds: { 200: AuditStreamList },
  handle: async ({ services }) => {
    const streams = await services.auditStreams.all();
    const states = await services.auditStreams.states(streams);
    return ok({ items: streams.map((stream, index) => streamView(stream, states[index]!)) });
  },
});

const createStream = endpoint({
  name: "createAuditStream",
  method: "POST",
  route,
  summary: "Create an audit stream to a SIEM",
  description:
    "Sends each sealed audit entry, the digest of every ten minutes, and each violation that is opened or resolved. Every event arrives at least once and in order. Duplicates have the same `id`, except violations that a repeated evaluation found at another time. `logsIngestion` and `eventHubs` use the service's identity. Returns 409 without the service's key vault or `AUDIT_SIGNING_KEYS`.",
  tag,
  access: "admin",
  tier: "core",
  body: NewAuditStream,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require: a stream sends the
  // audit log to an address that the request names.
  guarded: () => true,
  approverSees: ({ webhookUrl }) => (webhookUrl === undefined ? {} : { webhookTarget: shownAddress(webhookUrl) }),
  example: {
    body: { name: "Sentinel", destination: "webhook", webhookUrl: "https://siem.acme.example/", enabled: false },
  },
  problems: ["alreadyExists", "conflict"],
  responds: { 201: AuditStreamWithSecret },
  handle: async ({ body, caller, services }) => {
    const changed = await services.auditStreams.create(body, caller);
    const view = changedStreamView(changed, await stateOf(services, changed.stream));
    return created(view, `/${route}/${view.id}`);
  },
});

const getStream = endpoint({
  name: "getAuditStream",
  method: "GET",
  route: `${route}/{stream_id}`,
  summary: "Get an audit stream with its state and lag",
  tag,
  access: "admin",
  tier: "core",
  params: streamParams,
  problems: ["conflict"],
  responds: { 200: AuditStream },
  handle: async ({ params, services }) => {
    const stream = await services.auditStreams.get(params.stream_id);
    return resource(streamView(stream, await stateOf(services, stream)));
  },
});

const updateStream = endpoint({
  name: "updateAuditStream",
  method: "PUT",
  route: `${route}/{stream_id}`,
  summary: "Update or pause an audit stream",
  description:
    "Accepts any subset of the fields. The stream continues where it stopped, also with a new address. A webhook at another host gets a new signing key. If the receiver gets less from now on, it first gets the event `lifecycle.stream.stopping`.",
  tag,
  access: "admin",
  tier: "core",
  params: streamParams,
  body: AuditStreamChange,
  conditional: true,
  // Also to pause it, because the receiver then misses what happens next.
  guarded: ({ body }) => Object.keys(body).some((member) => member !== "name"),
  approverSees: ({ webhookUrl }) => (webhookUrl === undefined ? {} : { webhookTarget: shownAddress(webhookUrl) }),
  example: { body: { enabled: false } },
  problems: ["alreadyExists", "conflict"],
  responds: { 200: AuditStreamWithSecret },
  handle: async ({ params, body, ifMatch, caller, services }) => {
    const changed = await services.auditStreams.change(params.stream_id, body, caller, ifMatch);
    return resource(changedStreamView(changed, await stateOf(services, changed.stream)));
  },
});

const deleteStream = endpoint({
  name: "deleteAuditStream",
  method: "DELETE",
  route: `${route}/{stream_id}`,
  summary: "Delete an audit stream",
  description:
    "Also deletes a stream whose rows another program changed. The receiver of an enabled stream first gets the event `lifecycle.stream.stopping`; entries that are not sealed or sent yet do not reach it.",
  tag,
  access: "admin",
  tier: "core",
  params: streamParams,
  conditional: true,
  guarded: () => true,
  responds: { 200: Deleted },
  handle: async ({ params, ifMatch, caller, services }) => {
    await services.auditStreams.remove(params.stream_id, caller, ifMatch);
    return deleted();
  },
});

const testStream = endpoint({
  name: "testAuditStream",
  method: "POST",
  route: `${route}/{stream_id}/test`,
  summary: "Send a test event to an audit stream",
  description: "Sends one event of the type `lifecycle.stream.test`, whether or not the stream is enabled.",
  tag,
  access: "admin",
  tier: "core",
  params: streamParams,
  problems: ["conflict"],
  responds: { 200: AuditStreamTest },
  handle: async ({ params, caller, services }) =>
    ok(testView(await services.auditStreams.test(params.stream_id, caller))),
});

const rotateStreamSecret = endpoint({
  name: "rotateAuditStreamSecret",
  method: "POST",
  route: `${route}/{stream_id}/rotate-secret`,
  summary: "Rotate the signing key of an audit stream to a webhook",
  description: "For 24 hours, batches also carry a signature made with the previous key.",
  tag,
  access: "admin",
  tier: "core",
  params: streamParams,
  conditional: true,
  problems: ["conflict"],
  responds: { 200: AuditStreamWithSecret },
  handle: async ({ params, ifMatch, caller, services }) => {
    const changed = await services.auditStreams.rotateSecret(params.stream_id, caller, ifMatch);
    return resource(changedStreamView(changed, await stateOf(services, changed.stream)));
  },
});

export const endpoints = [
  listStreams,
  createStream,
  getStream,
  updateStream,
  deleteStream,
  testStream,
  rotateStreamSecret,
];

/** The log is sealed 30 seconds earlier. The runs in between retry and continue. */
export const timers = [
  timer({
    name: "sendAuditStreams",
    schedule: "0 2-57/5 * * * *",
    handle: async ({ services, log }) => {
      const sent = await services.auditStreams.run();
      if (sent > 0) log.info("Audit streams sent events", { sent });
    },
  }),
];
