import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { parse } from "../platform/http/parse-request.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { insert, type Operation, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { createStoredSecrets, type SecretReference, type SecretsGroup } from "../secrets/stored-secrets.ts";
import type { ProviderChange } from "./api.ts";
import { type ProviderDependencies, SyncFailure } from "./providers/provider.ts";
import { type AnyProvider, providerOf } from "./providers/providers.ts";
import { checkConfiguration, readConfiguration, readConfigurations, requireProvider } from "./read-configurations.ts";
import { CONFIGURED_QUEUE, Configurations, configurationKey, type ProviderConfiguration, SYNC } from "./record.ts";

/**
 * Delay of the first of the two messages that start failed records again. The first message is sent before the configuration is
 * written, in case the process crashes before it sends the second message.
 */
const EARLY_MESSAGE_DELAY_SECONDS = 60;

/** How the credentials of providers are stored in the service's own key vault. */
export const PROVIDER_SECRETS: SecretsGroup = {
  what: "Credentials of sync providers",
  table: "Sync",
  partitionKey: SYNC,
  namePrefix: "sync",
  contentType: "application/vnd.credential-lifecycle.sync-provider+json",
  removed: { type: "syncProvider.secretRemoved", target: { type: "syncProvider", id: "secret" } },
};

/** A provider with the configuration that opens its targets. */
export interface OpenedProvider {
  provider: AnyProvider;
  settings: Record<string, unknown>;
  secrets: Record<string, unknown>;
  /** Revision of the configuration. Undefined if the provider needs none. */
  revision: string | undefined;
}

/** A credential of a provider, for alerts about expiry. Times are ISO 8601. */
export interface ProviderCredential {
  id: string;
  what: string;
  name: string;
  createdAt: string;
  expiresAt: string;
}

/**
 * Stores the configurations of providers: the systems that sync copies secrets to, such as AWS. A configuration has settings
 * and credentials. The credentials are in the service's own key vault and are not returned by the API.
 */
export interface ProviderConfigurations {
  /**
   * Returns undefined if the provider is not configured, or its row was tampered with. @throws {Problem} notFound for an
   * unknown provider
   */
  find(provider: string): Promise<Row<ProviderConfiguration> | undefined>;
  /** Returns the configurations of all configured providers. */
  all(): Promise<Row<ProviderConfiguration>[]>;
  /**
   * Checks the configuration with a call without side effects, and saves it. Secrets that are left out stay if they are sent to
   * the same address.
   *
   * @throws {Problem} notFound, invalidRequest, preconditionFailed, conflict, unavailable
   */
  save(
    provider: string,
    given: ProviderChange,
    ifMatch: string | undefined,
    caller: Caller,
  ): Promise<Row<ProviderConfiguration>>;
  /** @throws {Problem} notFound, preconditionFailed */
  remove(provider: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /**
   * Returns what a run needs to open targets. @throws {SyncFailure} notConfigured; badCredentials if the provider rejected
   * these credentials before; {CloudFailure}
   */
  open(provider: string): Promise<OpenedProvider>;
  /** Calls the provider once with its stored configuration, reading only. @throws as `open`; {SyncFailure} of the provider */
  check(provider: string, signal: AbortSignal): Promise<void>;
  /** Records that the provider rejected these credentials. Runs do not use them again until they are replaced. */
  recordRejection(
    opened: OpenedProvider,
    rejection: { providerCode: string | undefined; recordId: string },
  ): Promise<void>;
  /** Yields the credentials that have not expired yet and expire not later than `latest`. */
  expiring(latest: Date): AsyncGenerator<ProviderCredential>;
  /** Deletes secrets that no configuration names anymore. Called once a day. */
  cleanUp(caller: Caller): Promise<void>;
}

export function createConfigurations(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  vault: ServiceKeyVault | undefined;
  providers: ProviderDependencies;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): ProviderConfigurations {
  const { tables, queues, audit, clock, randomness } = deps;
  const secrets = createStoredSecrets(PROVIDER_SECRETS, deps);

  const allConfigurations = async () => (await readConfigurations(tables)).configurations;

  async function storedSecrets(provider: AnyProvider, stored: ProviderConfiguration): Promise<Record<string, unknown>> {
    if (!stored.secret) return {};
    const text = deps.vault && (await secrets.read(stored.secret, bindingOf(provider, stored.settings)));
    if (text === undefined) {
      throw new SyncFailure("notConfigured", `The credentials of ${provider.title} are no longer in the key vault.`, {
        remedy: `Send them again: POST /api/automation/sync/providers/${provider.id}.`,
      });
    }
    return JSON.parse(text) as Record<string, unknown>;
  }

  /** Returns the given configuration, with the stored secrets if all secrets were left out. */
  async function completeConfiguration(
    provider: AnyProvider,
    given: Record<string, unknown>,
    before: ProviderConfiguration | undefined,
  ): Promise<{ settings: Record<string, unknown>; secret: Record<string, unknown>; isStoredSecret: boolean }> {
    const hasNewSecret = provider.secretMembers.some((member) => given[member] !== undefined);
    const isStoredSecret = !hasNewSecret && before?.secret !== undefined;
    const stored = isStoredSecret ? await storedSecrets(provider, before).catch(asInvalid(provider)) : {};
    const configuration = parse(provider.configuration, { ...given, ...stored }, "body") as Record<string, unknown>;
    const changedAddress =
      isStoredSecret &&
      provider.addressMembers.find((member) => !isEqual(configuration[member], before.settings[member]));
    if (changedAddress) {
      throw invalidBody(
        provider.secretMembers[0]!,
        `is needed again: ${changedAddress} changes, and saved credentials are not sent to another address`,
      );
    }
    const isSecret = (member: string) => provider.secretMembers.includes(member);
    const entries = Object.entries(configuration).filter(([, value]) => value !== undefined);
    return {
      settings: Object.fromEntries(entries.filter(([member]) => !isSecret(member))),
      secret: Object.fromEntries(entries.filter(([member]) => isSecret(member))),
      isStoredSecret,
    };
  }

  async function open(id: string): Promise<OpenedProvider> {
    const provider = requireProvider(id);
    const { row, broken } = await readConfiguration(tables, id);
    if (!row) {
      // `azure` needs no configuration, so a tampered one does not stop its records.
      if (provider.secretMembers.length === 0) return { provider, settings: {}, secrets: {}, revision: undefined };
      if (broken) throw tampered(provider);
      throw new SyncFailure("notConfigured", `${provider.title} is not configured.`, {
        remedy: `Send its credentials: POST /api/automation/sync/providers/${id}.`,
      });
    }
    // The provider rejected these credentials earlier, and no one has replaced them since.
    if (row.refused) throw refusedFailure(provider, row.refused, addressOf(provider, deps.providers));
    return {
      provider,
      settings: row.settings,
      secrets: await storedSecrets(provider, row),
      revision: row.revision,
    };
  }

  return {
    open,

    async find(id) {
      const { row, broken } = await readConfiguration(tables, requireProvider(id).id);
      if (broken)
        throw new Problem(
          "conflict",
          `The configuration of ${id} was changed by another program and is not used. Find out who can write this service's tables. Then configure the provider again, or delete the configuration.`,
        );
      return row;
    },
    all: allConfigurations,

    async save(id, { expiresOn, ...given }, ifMatch, caller) {
      const provider = requireProvider(id);
      if (!deps.vault) throw new Problem("conflict", NO_VAULT);
      const { row: before, broken } = await readConfiguration(tables, id);
      // Not for `broken`: no response shows the ETag of a tampered row.
      if (before) requireMatch(before.etag, ifMatch, THE_CONFIGURATION);
      const { settings, secret, isStoredSecret } = await completeConfiguration(provider, given, before);
      // New credentials do not inherit the expiry of the old ones. Null removes the expiry.
      const expiry = expiresOn === undefined && isStoredSecret ? before?.expiresOn : (expiresOn ?? undefined);
      const event = {
        type: "syncProvider.configured",
        caller,
        target: { type: "syncProvider", id },
        ...(before && { before: { settings: before.settings, expiresOn: before.expiresOn } }),
        after: { settings, expiresOn: expiry, newSecret: !isStoredSecret },
      };
      return await audited(audit, event, async () => {
        await checkConfiguration(provider, settings, secret, deps.providers);
        const now = clock.now();
        const at = now.toISOString();
        const reference = await storeSecret(provider, settings, secret, isStoredSecret ? before?.secret : undefined);
        // Without `refused`: runs try the credentials again, also if they are the same.
        const next: ProviderConfiguration = {
          provider: id,
          settings,
          ...(reference && { secret: reference }),
          secretsSet: Object.keys(secret),
          ...(expiry !== undefined && { expiresOn: expiry }),
          revision: randomness.ulid(now),
          createdAt: before?.createdAt ?? at,
          checkedAt: at,
          updatedAt: at,
          updatedBy: caller.actor,
        };
        // A row with an invalid signature (`broken`) is replaced too, so that an administrator can repair it.
        const etag = (before ?? broken)?.etag;
        const operations: Operation[] = [
          etag !== undefined
            ? replace(Configurations, configurationKey(id), next, etag)
            : insert(Configurations, configurationKey(id), next),
        ];
        // Makes the transaction fail if a clean-up has deleted the new credentials in the meantime.
        if (reference && !isStoredSecret) operations.push(secrets.requireStored(reference));
        // Sends a delayed message before the write, and another one after it. After a crash in between, the first one starts
        // the failed records, so they do not have to wait for their schedules.
        await queues.send(CONFIGURED_QUEUE, { provider: id }, { delaySeconds: EARLY_MESSAGE_DELAY_SECONDS });
        const etags = await write(operations, ifMatch);
        await queues.send(CONFIGURED_QUEUE, { provider: id });
        return { ...next, partitionKey: SYNC, rowKey: configurationKey(id), etag: etags.get(configurationKey(id))! };
      });
    },

    async remove(id, ifMatch, caller) {
      const { row: before, broken } = await readConfiguration(tables, requireProvider(id).id);
      const etag = (before ?? broken)?.etag;
      if (etag === undefined) throw notFound(`A configuration of ${id}`);
      if (before) requireMatch(before.etag, ifMatch, THE_CONFIGURATION);
      const event = { type: "syncProvider.removed", caller, target: { type: "syncProvider", id } };
      await audited(audit, { ...event, ...(before && { before: { settings: before.settings } }) }, () =>
        write([remove(Configurations, configurationKey(id), etag)], ifMatch),
      );
    },

    async check(id, signal) {
      const { provider, settings, secrets } = await open(id);
      await provider.check(settings, secrets, deps.providers, signal);
    },

    async recordRejection({ provider, revision }, { providerCode, recordId }) {
      // A provider without secrets has nothing that could be replaced.
      if (revision === undefined || provider.secretMembers.length === 0) return;
      const at = clock.now().toISOString();
      const address = addressOf(provider, deps.providers);
      await tables.modify(Configurations, SYNC, configurationKey(provider.id), (now) =>
        now?.revision === revision && !now.refused
          ? {
              ...withoutKeys(now),
              refused: { at, recordId, address, ...(providerCode !== undefined && { providerCode }) },
            }
          : undefined,
      );
    },

    async *expiring(latest) {
      const now = clock.now().toISOString();
      for (const { provider, expiresOn, updatedAt, revision } of await allConfigurations()) {
        if (expiresOn === undefined || expiresOn <= now || Date.parse(expiresOn) > latest.getTime()) continue;
        const name = providerOf(provider)?.title ?? provider;
        yield {
          // With the revision, so that an alert about earlier credentials does not count for these.
          id: `sync.${provider}.${revision}`,
          what: "Credentials of a sync provider",
          name,
          createdAt: updatedAt,
          expiresAt: expiresOn,
        };
      }
    },

    async cleanUp(caller) {
      const { configurations, unreadable } = await readConfigurations(tables);
      // The secret of an unreadable configuration is unknown, and is needed again if the row is restored.
      if (unreadable > 0) return;
      const used = configurations.flatMap(({ secret }) => secret ?? []);
      await secrets.cleanUp(used, caller);
    },
  };

  /** Stores new credentials and returns their reference. Returns the given reference if the stored credentials stay. */
  async function storeSecret(
    provider: AnyProvider,
    settings: Record<string, unknown>,
    secret: Record<string, unknown>,
    storedReference: SecretReference | undefined,
  ): Promise<SecretReference | undefined> {
    if (storedReference || Object.keys(secret).length === 0) return storedReference;
    return await secrets.write(JSON.stringify(secret), bindingOf(provider, settings));
  }

  async function write(operations: Operation[], ifMatch: string | undefined): Promise<Map<string, string>> {
    return await conditionalWrite(
      tables.transaction(Configurations.table, SYNC, operations),
      ifMatch,
      THE_CONFIGURATION,
    );
  }
}

const THE_CONFIGURATION = "The provider's configuration";

/** Binds stored secrets to the address they are sent to. They can't be read for another address, whatever a row says. */
const bindingOf = ({ id, addressMembers }: AnyProvider, settings: Record<string, unknown>): string =>
  JSON.stringify([id, ...addressMembers.map((member) => settings[member] ?? null)]);

const isEqual = (value: unknown, otherValue: unknown): boolean => JSON.stringify(value) === JSON.stringify(otherValue);

/** Returns an error handler for a request that leaves the secrets out: asks for them if the stored ones can't be read. */
const asInvalid = (provider: AnyProvider) => (error: unknown) => {
  if (!(error instanceof SyncFailure)) throw error;
  throw invalidBody(
    provider.secretMembers[0]!,
    "is needed again: the saved credentials are no longer in the key vault",
  );
};

const NO_VAULT =
  "Sync provider configurations are signed with a key in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.";

const tampered = ({ id, title }: AnyProvider) =>
  new SyncFailure("notConfigured", `The configuration of ${title} was changed by another program and is not used.`, {
    remedy: `Find out who can write this service's tables; then send the configuration again: POST /api/automation/sync/providers/${id}.`,
  });

/** Returns the provider's address in the settings of this host, without a path. `public` if they have none. */
function addressOf({ id }: AnyProvider, { endpoints }: ProviderDependencies): string {
  const address = (endpoints as Record<string, string | undefined>)[id];
  return address === undefined ? "public" : new URL(address).origin;
}

/**
 * Returns the failure of a run whose credentials the provider has rejected before: since when they are not used, and in which
 * record's run they were rejected. If that run was on a host with another address of the provider, the credentials may be right
 * and the settings of one host wrong, so the failure names both addresses.
 */
function refusedFailure(
  provider: AnyProvider,
  refused: NonNullable<ProviderConfiguration["refused"]>,
  ownAddress: string,
): SyncFailure {
  const { at, providerCode, recordId, address = ownAddress } = refused;
  const run = recordId === undefined ? "" : `, in a run of the sync record ${recordId}`;
  const send = `POST /api/automation/sync/providers/${provider.id}`;
  const [otherAddress, remedy] =
    address === ownAddress
      ? ["", `Send others: ${send}. Until then they are not tried again.`]
      : [
          `. Another host called it, at the address ${address}; this host calls ${ownAddress}`,
          `Give all hosts on this storage the same address of ${provider.title} in their settings. Then send the credentials again: ${send}.`,
        ];
  return new SyncFailure(
    "badCredentials",
    `${provider.title} refused the configured credentials at ${at}${run}${otherAddress}.`,
    {
      remedy,
      providerCode,
    },
  );
}
