import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Compliance } from "../compliance/compliance.ts";
import { originInDomains } from "../platform/azure/azure-events.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import { addressProblem } from "../platform/outgoing/outgoing.ts";
import { keysAfterRotation, SIGNING_KEY_BYTES, signingKeyOf } from "../platform/outgoing/webhooks.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, remove, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { createStoredSecrets, type SecretReference, type SecretsGroup } from "../secrets/stored-secrets.ts";
import type { AuditStreamChange, NewAuditStream } from "./api.ts";
import type { StopReason } from "./event.ts";
import {
  type ChangedStream,
  MAX_STREAMS,
  Progress,
  type ProgressRecord,
  progressKey,
  readProgress,
  STREAM_PREFIX,
  STREAMS,
  type StreamRecord,
  StreamSecret,
  Streams,
  streamKey,
} from "./stream.ts";

/** How the URLs and signing keys of webhooks are stored in the service's own key vault. */
const STREAM_SECRETS: SecretsGroup = {
  what: "Webhook URLs of audit streams",
  table: Streams.table,
  partitionKey: STREAMS,
  namePrefix: "audit-stream",
  contentType: "application/vnd.credential-lifecycle.webhook+json",
  removed: { type: "auditStream.secretRemoved", target: { type: "auditStream", id: "secret" } },
};
/** Maximum number of signing keys of a stream, to limit the size of headers. */
const MAX_KEYS = 20;
const THE_STREAM = "The audit stream";

/** The configurations of audit streams. Every change is recorded in the audit log. */
export interface StreamStore {
  /** Returns all streams that can be read, by creation time. One request. */
  all(): Promise<Row<StreamRecord>[]>;
  /** Returns a stream. @throws {Problem} notFound */
  get(streamId: string): Promise<Row<StreamRecord>>;
  /**
   * Creates a stream, which starts with the next interval that is sealed, or with the oldest entry of the log.
   *
   * @throws {Problem} invalidRequest, alreadyExists; conflict without a key vault, without signing keys of the audit log or with too
   *   many streams; unavailable if the key vault fails
   */
  create(given: NewAuditStream, caller: Caller): Promise<ChangedStream>;
  /** Changes any subset of the fields. @throws {Problem} notFound, preconditionFailed; otherwise as `create` */
  change(
    streamId: string,
    given: AuditStreamChange,
    caller: Caller,
    ifMatch: string | undefined,
  ): Promise<ChangedStream>;
  /** Creates a signing key. Previous keys stay valid for a day. @throws {Problem} conflict if the stream is no webhook */
  rotateSecret(streamId: string, caller: Caller, ifMatch: string | undefined): Promise<ChangedStream>;
  /** Deletes a stream, also one whose rows can't be read. @throws {Problem} notFound, preconditionFailed */
  remove(streamId: string, caller: Caller, ifMatch: string | undefined): Promise<void>;
  /** Returns the URL and the keys of a webhook. @throws {CloudFailure}; {Problem} conflict without a key vault */
  readSecret(stream: StreamRecord): Promise<StreamSecret | undefined>;
  /** Deletes secrets that no stream names anymore. Called once a day. */
  cleanUp(caller: Caller): Promise<void>;
}

export interface StreamStoreDependencies {
  tables: Tables;
  audit: Audit;
  compliance: Pick<Compliance, "violationChanges">;
  vault: ServiceKeyVault | undefined;
  config: Pick<Config, "ALLOW_PRIVATE_WEBHOOK_ADDRESSES" | "cloud">;
  /**
   * Tells the receiver of a stream that the stream stops. Returns why the receiver did not get it, or undefined. Takes at most ten
   * seconds.
   */
  tellStopping(stream: StreamRecord, reason: StopReason, caller: Caller): Promise<string | undefined>;
  clock: Clock;
  randomness: Randomness;
}

export function createStreamStore(deps: StreamStoreDependencies): StreamStore {
  const { tables, audit, compliance, config, clock, randomness } = deps;
  const secrets = createStoredSecrets(STREAM_SECRETS, deps);

  /** Returns the stored row. `broken`: the row exists, but another program changed it. */
  async function find(streamId: string): Promise<{ row: Row<StreamRecord> | undefined; broken?: boolean }> {
    if (!isUlid(streamId)) return { row: undefined };
    try {
      return { row: await tables.get(Streams, STREAMS, streamKey(streamId)) };
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      return { row: undefined, broken: true };
    }
  }

  async function get(streamId: string): Promise<Row<StreamRecord>> {
    const { row, broken } = await find(streamId);
    if (broken)
      throw new Problem(
        "conflict",
        "The stream's row was changed by another program and is not used. Find out who can write this service's tables. Then delete the stream and create it again.",
      );
    if (!row) throw notFound(`The audit stream ${streamId.slice(0, 64)}`);
    return row;
  }

  async function readAll(): Promise<{ streams: Row<StreamRecord>[]; unreadable: number }> {
    const streams: Row<StreamRecord>[] = [];
    let unreadable = 0;
    const onCorrupt = (row: StorageCorrupt) => {
      countLeftOut(row, row.rowKey.slice(STREAM_PREFIX.length));
      unreadable++;
    };
    const range = { partitionKey: STREAMS, from: STREAM_PREFIX, before: keyEnd(STREAM_PREFIX), onCorrupt };
    for await (const rows of tables.pages(Streams, range)) streams.push(...rows);
    return { streams, unreadable };
  }

  async function readSecret({ streamId, secret }: StreamRecord): Promise<StreamSecret | undefined> {
    const text = secret && (await secrets.read(secret, streamId));
    return text === undefined ? undefined : StreamSecret.parse(JSON.parse(text));
  }

  /** Stores the URL and the keys of a webhook. Returns the stream with the reference. */
  async function withSecret(stream: StreamRecord, secret: StreamSecret): Promise<StreamRecord> {
    const reference = await secrets.write(JSON.stringify(secret), stream.streamId);
    return { ...stream, host: new URL(secret.url).host, secret: reference };
  }

  const newKey = (): string => signingKeyOf(randomness.bytes(SIGNING_KEY_BYTES));
  const requireStored = (secret: SecretReference | undefined): Operation[] =>
    secret ? [secrets.requireStored(secret)] : [];

  async function write(
    stream: StreamRecord,
    operations: Operation[],
    ifMatch: string | undefined,
  ): Promise<Row<StreamRecord>> {
    const transaction = tables.transaction(Streams.table, STREAMS, operations);
    const etags = await conditionalWrite(transaction, ifMatch, THE_STREAM);
    const rowKey = streamKey(stream.streamId);
    return { ...stream, partitionKey: STREAMS, rowKey, etag: etags.get(rowKey)! };
  }

  /** Makes a failing stream send again with the next run, because an administrator may have fixed the cause. Ends a worker's lease. */
  async function retrySoon(streamId: string): Promise<void> {
    try {
      await tables.modify(Progress, STREAMS, progressKey(streamId), (now) =>
        now?.nextAttemptAt === undefined
          ? undefined
          : { ...withoutKeys(now), nextAttemptAt: undefined, worker: undefined },
      );
    } catch (error) {
      // A row that another program changed stays as it is: the stream's state shows it.
      if (!(error instanceof StorageCorrupt)) throw error;
    }
  }

  return {
    all: async () => (await readAll()).streams.sort((a, b) => (a.streamId < b.streamId ? -1 : 1)),
    get,
    readSecret,

    async create({ webhookUrl, from, ...given }, caller) {
      if (!deps.vault)
        throw new Problem(
          "conflict",
          "Audit streams are signed with a key in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.",
        );
      if (!audit.isSealed)
        throw new Problem("conflict", "Audit streams send the sealed audit log. Set AUDIT_SIGNING_KEYS.");
      const now = clock.now();
      const at = now.toISOString();
      const streamId = randomness.ulid(now);
      const record: StreamRecord = {
        ...given,
        content: [...new Set(given.content)],
        streamId,
        createdAt: at,
        createdBy: caller.actor,
        updatedAt: at,
        updatedBy: caller.actor,
      };
      if (given.destination === "webhook" && webhookUrl === undefined)
        throw invalidBody("webhookUrl", "is required for the destination webhook");
      const planned = checkedDestination(record, webhookUrl, config);
      const { streams } = await readAll();
      if (streams.length >= MAX_STREAMS)
        throw new Problem("conflict", `There are already ${streams.length} audit streams. Delete one first.`);
      requireFreeName(streams, planned);
      const progress: ProgressRecord = {
        streamId,
        audit: await audit.sealed.start(from),
        violations: compliance.violationChanges.now(),
        sent: 0,
        failures: 0,
      };
      const event = { type: "auditStream.created", caller, target: targetOf(planned), after: auditView(planned) };
      return await audited(audit, event, async () => {
        const webhookSecret = webhookUrl === undefined ? undefined : newKey();
        const stream =
          webhookUrl === undefined
            ? planned
            : await withSecret(planned, { url: webhookUrl, keys: [{ key: webhookSecret! }] });
        const operations = [
          insert(Streams, streamKey(streamId), stream),
          insert(Progress, progressKey(streamId), progress),
          ...requireStored(stream.secret),
        ];
        return { stream: await write(stream, operations, undefined), webhookSecret };
      });
    },

    async change(streamId, { webhookUrl, ...given }, caller, ifMatch) {
      const row = await get(streamId);
      requireMatch(row.etag, ifMatch, THE_STREAM);
      const before: StreamRecord = withoutKeys(row);
      const changed = {
        ...before,
        ...given,
        ...(given.content && { content: [...new Set(given.content)] }),
        updatedAt: clock.now().toISOString(),
        updatedBy: caller.actor,
      };
      const planned = checkedDestination(changed, webhookUrl, config);
      requireFreeName((await readAll()).streams, planned);
      const event = {
        type: "auditStream.changed",
        caller,
        target: targetOf(planned),
        before: auditView(before),
        after: { ...auditView(planned), newUrl: webhookUrl !== undefined },
      };
      const stops = stopReasonOf(before, planned, webhookUrl);
      let untold: string | undefined;
      const effect = async (): Promise<ChangedStream> => {
        untold = stops && (await deps.tellStopping(before, stops, caller));
        let stream = planned;
        if (webhookUrl !== undefined) {
          const stored = await readSecret(before);
          // A new receiver must not get the key with which the previous one verifies messages.
          const isSame = stored !== undefined && new URL(stored.url).origin === new URL(webhookUrl).origin;
          const webhookSecret = isSame ? undefined : newKey();
          const keys = webhookSecret === undefined ? stored!.keys : [{ key: webhookSecret }];
          stream = await withSecret(planned, { url: webhookUrl, keys });
          const operations = [replace(Streams, row.rowKey, stream, row.etag), ...requireStored(stream.secret)];
          const written = await write(stream, operations, ifMatch);
          await retrySoon(streamId);
          return { stream: written, webhookSecret };
        }
        const written = await write(stream, [replace(Streams, row.rowKey, stream, row.etag)], ifMatch);
        await retrySoon(streamId);
        return { stream: written };
      };
      return await audited(audit, event, effect, () => (stops ? { details: receiverDetails(untold) } : {}));
    },

    async rotateSecret(streamId, caller, ifMatch) {
      const row = await get(streamId);
      requireMatch(row.etag, ifMatch, THE_STREAM);
      const stream: StreamRecord = withoutKeys(row);
      if (stream.destination !== "webhook")
        throw new Problem(
          "conflict",
          `Only webhooks are signed. The destination of this stream is ${stream.destination}.`,
        );
      const now = clock.now();
      const event = { type: "auditStream.secretRotated", caller, target: targetOf(stream) };
      return await audited(audit, event, async () => {
        const stored = await readSecret(stream);
        if (!stored)
          throw new Problem("conflict", "The stream's webhookUrl is missing from the key vault. Set webhookUrl again.");
        const validKeys = keysAfterRotation(stored.keys, now);
        if (validKeys.length >= MAX_KEYS)
          throw new Problem(
            "conflict",
            `The stream already has ${validKeys.length} valid signing keys. Try again in a day.`,
          );
        const webhookSecret = newKey();
        const changed = { ...stream, updatedAt: now.toISOString(), updatedBy: caller.actor };
        const next = await withSecret(changed, { url: stored.url, keys: [{ key: webhookSecret }, ...validKeys] });
        const operations = [replace(Streams, row.rowKey, next, row.etag), ...requireStored(next.secret)];
        return { stream: await write(next, operations, ifMatch), webhookSecret };
      });
    },

    async remove(streamId, caller, ifMatch) {
      const { row, broken } = await find(streamId);
      if (!row && !broken) throw notFound(`The audit stream ${streamId.slice(0, 64)}`);
      // Not for `broken`: no response shows the ETag of such a row.
      if (row) requireMatch(row.etag, ifMatch, THE_STREAM);
      const event = {
        type: "auditStream.deleted",
        caller,
        target: { type: "auditStream", id: streamId },
        ...(row && { before: auditView(row) }),
      };
      const effect = async (): Promise<string | undefined> => {
        const untold = row?.enabled ? await deps.tellStopping(row, "deleted", caller) : "The stream was off.";
        const operations = [remove(Streams, streamKey(streamId), row?.etag)];
        const hasProgress = (await readProgress(tables, streamId)) !== "missing";
        if (hasProgress) operations.push(remove(Progress, progressKey(streamId)));
        await conditionalWrite(tables.transaction(Streams.table, STREAMS, operations), ifMatch, THE_STREAM);
        return untold;
      };
      await audited(audit, event, effect, (untold) => ({ details: receiverDetails(untold) }));
      try {
        if (row?.secret) await secrets.remove(row.secret);
      } catch (error) {
        // The stream is deleted. The daily clean-up removes the secret.
        if (!(error instanceof CloudFailure)) throw error;
      }
    },

    async cleanUp(caller) {
      const { streams, unreadable } = await readAll();
      // The secret of a row that can't be read is unknown, and is needed again if the row is restored.
      if (unreadable > 0) return;
      await secrets.cleanUp(
        streams.flatMap(({ secret }) => secret ?? []),
        caller,
      );
    },
  };
}

/** Returns why a change stops what the present receiver gets. Undefined if it does not. */
function stopReasonOf(
  before: StreamRecord,
  after: StreamRecord,
  webhookUrl: string | undefined,
): StopReason | undefined {
  if (!before.enabled) return undefined;
  if (!after.enabled) return "paused";
  const isSame = (["endpoint", "ruleId", "streamName", "eventHub"] as const).every(
    (name) => before[name] === after[name],
  );
  return isSame && webhookUrl === undefined && before.content.every((content) => after.content.includes(content))
    ? undefined
    : "changed";
}

/** What the audit log says about the last event to a receiver. */
const receiverDetails = (untold: string | undefined) =>
  untold === undefined ? { receiverTold: true } : { receiverTold: false, reason: untold };

/** Checks the members that the destination needs. @throws {Problem} invalidRequest */
function checkedDestination(
  stream: StreamRecord,
  webhookUrl: string | undefined,
  config: StreamStoreDependencies["config"],
): StreamRecord {
  const { destination, endpoint, ruleId, streamName, eventHub } = stream;
  const { resourceDomains } = config.cloud;
  const common = withoutAddress(stream);
  if (destination === "webhook") {
    if (webhookUrl !== undefined) {
      const problem = addressProblem(new URL(webhookUrl), config.ALLOW_PRIVATE_WEBHOOK_ADDRESSES);
      if (problem) throw invalidBody("webhookUrl", problem);
    } else if (!stream.secret) throw invalidBody("webhookUrl", "is required for the destination webhook");
    return stream;
  }
  if (webhookUrl !== undefined) throw invalidBody("webhookUrl", `is not supported for the destination ${destination}`);
  const domains = destination === "logsIngestion" ? resourceDomains.logsIngestion : resourceDomains.messaging;
  const origin = originInDomains(endpoint ?? "", domains);
  if (origin === undefined)
    throw invalidBody("endpoint", `must be an address such as https://NAME.${domains[0]}, without a path`);
  if (destination === "eventHubs") {
    if (eventHub === undefined) throw invalidBody("eventHub", "is required for the destination eventHubs");
    return { ...common, endpoint: origin, eventHub };
  }
  if (ruleId === undefined) throw invalidBody("ruleId", "is required for the destination logsIngestion");
  if (streamName === undefined) throw invalidBody("streamName", "is required for the destination logsIngestion");
  return { ...common, endpoint: origin, ruleId, streamName };
}

const targetOf = ({ streamId }: Pick<StreamRecord, "streamId">) => ({ type: "auditStream", id: streamId });

/** The members that the audit log shows. The reference to the secret is not one of them. */
const auditView = ({ name, destination, content, enabled, host, ...address }: StreamRecord) => {
  const { endpoint, ruleId, streamName, eventHub } = address;
  return { name, destination, content, enabled, host, endpoint, ruleId, streamName, eventHub };
};

/** Returns the stream without the members of its destination. */
function withoutAddress(stream: StreamRecord): StreamRecord {
  const { host: _h, secret: _s, endpoint: _e, ruleId: _r, streamName: _n, eventHub: _b, ...common } = stream;
  return common;
}

function requireFreeName(streams: readonly StreamRecord[], { streamId, name }: StreamRecord): void {
  const isTaken = streams.some(
    (other) => other.streamId !== streamId && other.name.toLowerCase() === name.toLowerCase(),
  );
  if (isTaken) throw new Problem("alreadyExists", `An audit stream named ${name} already exists. Choose another name.`);
}
