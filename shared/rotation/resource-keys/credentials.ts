import pMap from "p-map";
import * as z from "zod";
import type { Audit } from "../../audit/audit.ts";
import { audited } from "../../audit/audited.ts";
import { Assets } from "../../inventory/asset.ts";
import { expiryBounds, nameKey, partitions } from "../../inventory/asset-keys.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import type { Caller } from "../../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../../platform/http/paging.ts";
import { notFound } from "../../platform/http/problem.ts";
import { createDiscoveryRuns, RunBusy } from "../../platform/runs/discovery-runs.ts";
import { waitForRun } from "../../platform/runs/wait-for-run.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import type { Queues } from "../../platform/storage/queues.ts";
import { DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { noServiceVault } from "../matches.ts";
import { placeKey } from "../targets.ts";
import { discoverLinks, type LinkDiscoveryDependencies } from "./discovery.ts";
import { RUNS, type RunRecord, Runs } from "./discovery-run.ts";
import { KEY_KINDS, type KeyKind } from "./kinds.ts";
import { KEY_LINKS, type KeyLink, KeyLinks } from "./links.ts";

/** Name of the queue. A message continues a run. */
export const QUEUE = "credentials-discover";
export const DiscoverMessage = z.object({ runId: z.string() });
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** Time that a request waits for its run to end. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes a run if the request's process crashes. */
const MESSAGE_DELAY_SECONDS = 30;
/** Maximum delay of a message that is requeued because another worker has the run. */
const MAX_REQUEUE_SECONDS = 60;
/** Number of inventory rows that are read concurrently. */
const READS_AT_ONCE = 16;
/** Characters of the hash of a resource's ID in the ID of a credential: 128 bits. */
const HASH_LENGTH = 32;

/** A vault secret that stored a key of the pair when it was last compared. */
export interface CredentialPlace extends KeyLink {
  /** Expiry of the secret in the inventory, in Unix seconds. Undefined if it has none, or the inventory does not list it. */
  expiresOn: number | undefined;
}

/** A pair of keys of one resource, of which vault secrets store at least one. */
export interface Credential {
  credentialId: string;
  resourceId: string;
  kind: KeyKind;
  pair: readonly [string, string];
  places: CredentialPlace[];
}

export interface CredentialFilter {
  /** Name of a kind. */
  kind?: string | undefined;
  vaultName?: string | undefined;
  resourceId?: string | undefined;
  /** Only credentials of which a vault secret expires within this number of days, or has expired. */
  due?: number | undefined;
}

/** Credentials of Azure resources that vault secrets store, and the discovery that finds them. */
export interface Credentials {
  /**
   * Starts a discovery. Returns the run when it ends or after 20 seconds. If a run is in progress, returns that run.
   *
   * @throws {Problem} conflict if the service has no own key vault.
   */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** Returns a discovery run. @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /** Continues a run. Handler of the queue. */
  handle(message: DiscoverMessage): Promise<void>;
  /** Ends the run of a message that failed five times as failed. */
  failed(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Lists credentials by the name of the resource. Reads all links, and the inventory rows of the page. */
  list(filter: CredentialFilter, request: PageRequest): Promise<Page<Credential>>;
  /** @throws {Problem} notFound */
  get(credentialId: string): Promise<Credential>;
}

export function createCredentials(
  deps: LinkDiscoveryDependencies & {
    audit: Pick<Audit, "append">;
    queues: Queues;
    /** Milliseconds that a request waits for its run. Tests set it. */
    waitMs?: number;
  },
): Credentials {
  const { tables, queues, audit, clock, log, waitMs = WAIT_MS } = deps;
  const runs = createDiscoveryRuns({ runs: Runs, partitionKey: RUNS }, deps);

  /** Works on a run until it ends, or until another message continues it. */
  async function continueRun(runId: string): Promise<"ended" | "more"> {
    const leasedRun = await runs.lease(runId);
    if (!leasedRun) return "ended";
    try {
      const result = await discoverLinks(leasedRun, deps);
      if (result === "more") await leasedRun.release();
      else await runs.removeOld();
      return result;
    } catch (error) {
      await leasedRun.release();
      throw error;
    }
  }

  async function startRun(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }> {
    return await audited(
      audit,
      { type: "rotation.credentialDiscoveryRequested", caller },
      async () => {
        const counts = { resources: 0, resourcesDenied: 0, secrets: 0, secretsDenied: 0, links: 0, removed: 0 };
        const started = await runs.start({ trigger: "api", ...counts }, caller);
        // Sends the message even if a run was already in progress, whose own message may be lost. A duplicate is harmless.
        await queues.send(QUEUE, { runId: started.run.runId }, { delaySeconds: MESSAGE_DELAY_SECONDS });
        return started;
      },
      ({ run }) => ({ details: { runId: run.runId } }),
    );
  }

  /** Returns the credentials of links, each with its places. `expiresOn` is not read yet. */
  async function readCredentials(prefix: string): Promise<Credential[]> {
    const credentials = new Map<string, Credential>();
    const range = { partitionKey: KEY_LINKS, from: prefix, ...(prefix !== "" && { before: keyEnd(prefix) }) };
    // A row that this service did not sign must not keep a credential from being rotated.
    for await (const rows of tables.pages(KeyLinks, { ...range, onCorrupt: "leaveOut" })) {
      for (const row of rows) {
        const credential = credentialOf(row);
        // A kind or key of a later version.
        if (credential === undefined) continue;
        const known = credentials.get(credential.credentialId);
        if (known === undefined) credentials.set(credential.credentialId, credential);
        else known.places.push(...credential.places);
      }
    }
    return [...credentials.values()];
  }

  /** Returns the keys of the places whose secret expires before a time in Unix seconds. */
  async function placesThatExpire(before: number): Promise<Set<string>> {
    const places = new Set<string>();
    const range = { partitionKey: partitions.all, ...expiryBounds("secret", 0, before, false) };
    for await (const rows of tables.pages(Assets, { ...range, select: ["name", "vaultName"] }))
      for (const { name, vaultName } of rows) places.add(placeKey({ vaultName, secretName: name }));
    return places;
  }

  async function withExpiry(credential: Credential): Promise<Credential> {
    const places = await pMap(
      credential.places,
      async (place) => {
        const { vaultName, secretName } = place;
        const key = nameKey("secret", secretName, vaultName);
        const asset = await tables.get(Assets, partitions.vault(vaultName), key, {
          onCorrupt: ({ message }) => log.error(message),
        });
        return { ...place, expiresOn: asset?.expiresOn };
      },
      { concurrency: READS_AT_ONCE },
    );
    return { ...credential, places };
  }

  return {
    run: (runId) => runs.get(runId),

    async discover(caller) {
      // Links are signed with a key from the service's own key vault.
      if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
      const { run, isNew } = await startRun(caller);
      const { runId } = run;
      await waitForRun(continueRun(runId), { runId, late: AbortSignal.timeout(waitMs), log });
      return { run: await runs.get(runId), isNew };
    },

    async handle({ runId }) {
      let waitMs = 0;
      try {
        if ((await continueRun(runId)) === "ended") return;
      } catch (error) {
        // Another worker has the run. The message is sent again, because throwing would count as a failed delivery.
        if (error instanceof RunBusy) waitMs = error.waitMs;
        else if (isConflict(error)) waitMs = SECOND_MS;
        else throw error;
      }
      const delaySeconds = Math.min(MAX_REQUEUE_SECONDS, Math.ceil(waitMs / SECOND_MS));
      await queues.send(QUEUE, { runId }, { delaySeconds });
    },

    async failed({ runId }, caller) {
      log.error("A message of a credential discovery failed in all deliveries", { runId });
      const failure = {
        list: "resources",
        code: "internal",
        message: "The keys and secrets could not be compared in five attempts.",
        remedy: "See GET /system/failed-messages and the log. Then start another discovery.",
        at: clock.now().toISOString(),
      };
      await runs.fail(runId, failure);
      await audit.append({
        type: "rotation.credentialsDiscovered",
        caller,
        outcome: "failure",
        target: { type: "credentialDiscovery", id: runId },
        details: { status: "failed", failures: ["resources: internal"] },
      });
    },

    async list({ kind, vaultName, resourceId, due }, request) {
      const dueBefore = due === undefined ? undefined : Math.floor(clock.now().getTime() / 1000) + due * DAY_SECONDS;
      const duePlaces = dueBefore === undefined ? undefined : await placesThatExpire(dueBefore);
      const matches = (credential: Credential) =>
        (kind === undefined || credential.kind.name === kind) &&
        (resourceId === undefined || credential.resourceId.toLowerCase() === resourceId.toLowerCase()) &&
        (vaultName === undefined ||
          credential.places.some((place) => place.vaultName.toLowerCase() === vaultName.toLowerCase())) &&
        (duePlaces === undefined || credential.places.some((place) => duePlaces.has(placeKey(place))));
      const page = pageOfAll((await readCredentials("")).filter(matches), request, sortKeyOf);
      return { ...page, items: await pMap(page.items, withExpiry, { concurrency: READS_AT_ONCE }) };
    },

    async get(credentialId) {
      const id = credentialId.toLowerCase();
      const credentials = CREDENTIAL_ID.test(id) ? await readCredentials(id.slice(0, HASH_LENGTH)) : [];
      const credential = credentials.find((one) => one.credentialId === id);
      if (!credential) throw notFound(`The credential ${credentialId.slice(0, 64)}`);
      return await withExpiry(credential);
    },
  };
}

/** The hash of the resource's ID, and the number of the pair. */
const CREDENTIAL_ID = /^[0-9a-f]{32}-[1-9]$/;

/** Returns the credential of a link. Undefined if the table of kinds does not contain its key. */
function credentialOf(row: Row<KeyLink>): Credential | undefined {
  const link = withoutKeys(row);
  const kind = KEY_KINDS.find(({ name }) => name === link.keyKind);
  const index = kind?.pairs.findIndex((pair) => pair.includes(link.keyName)) ?? -1;
  if (kind === undefined || index < 0) return undefined;
  return {
    credentialId: `${row.rowKey.slice(0, HASH_LENGTH)}-${index + 1}`,
    resourceId: link.resourceId,
    kind,
    pair: kind.pairs[index]!,
    places: [{ ...link, expiresOn: undefined }],
  };
}

const sortKeyOf = ({ resourceId, credentialId }: Credential): string =>
  `${resourceName(resourceId).toLowerCase()}!${credentialId}`;
