import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, replace, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { createStoredSecrets, type SecretReference } from "../secrets/stored-secrets.ts";
import { type AcmeAccount, type AcmeClients, type AcmeDirectory, AcmeFailure, newAccountKey } from "./acme.ts";
import { AUTHORITIES, type AuthorityRecord, AuthorityRows, TABLE } from "./authority.ts";
import { isPolicyOf, POLICIES, Policies } from "./policy.ts";

/** What a user configures of an authority. */
export interface AuthorityChange {
  name: string;
  directoryUrl: string;
  contacts: string[];
  /** Undefined: unchanged, or none for a new authority. Null: none. */
  externalAccountBinding?: { keyId: string; hmacKey: string } | null | undefined;
  preferredChain: string | null;
  profile: string | null;
  certificatesPerDomain: number;
  budgetDays: number;
}

/** What the directory of an authority says, and what keeps certificates from being issued there. */
export interface AuthorityTest {
  profiles: string[];
  externalAccountRequired: boolean;
  renewalInformation: boolean;
  problems: string[];
}

/** Certificate authorities that issue certificates over ACME. */
export interface Authorities {
  all(): Promise<Row<AuthorityRecord>[]>;
  /** @throws {Problem} notFound; {StorageCorrupt} for a row that this service did not sign. */
  get(authorityId: string): Promise<Row<AuthorityRecord>>;
  /** Reads the directory. Stores and registers nothing. @throws {Problem} invalidRequest, unavailable */
  test(change: Pick<AuthorityChange, "directoryUrl" | "profile" | "externalAccountBinding">): Promise<AuthorityTest>;
  /** Registers an account and stores the authority. @throws {Problem} invalidRequest, conflict, unavailable */
  add(change: AuthorityChange, caller: Caller): Promise<Row<AuthorityRecord>>;
  /** Another directory, or another binding, gets a new account. @throws {Problem} as `add`; notFound, preconditionFailed */
  replace(
    authorityId: string,
    change: AuthorityChange,
    ifMatch: string | undefined,
    caller: Caller,
  ): Promise<Row<AuthorityRecord>>;
  /** Forgets the authority, and deletes the key of its account. @throws {Problem} notFound; conflict while a policy names it. */
  remove(authorityId: string, caller: Caller): Promise<void>;
  /** Opens the account at an authority. @throws {AcmeFailure}, {CloudFailure}, {Problem} conflict if its key is missing. */
  open(authority: AuthorityRecord): Promise<AcmeAccount>;
  /** Deletes keys that no authority references. */
  cleanUp(caller: Caller): Promise<void>;
}

export function createAuthorities(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  serviceVault: ServiceKeyVault | undefined;
  acme: AcmeClients;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Authorities {
  const { tables, audit, serviceVault, acme, clock, randomness, log } = deps;
  const secrets = createStoredSecrets(
    {
      what: "Keys of certificate authorities",
      table: TABLE,
      partitionKey: AUTHORITIES,
      namePrefix: "acme",
      contentType: "text/plain",
      removed: { type: "certificateAuthority.keyRemoved", target: { type: "certificateAuthorities", id: "all" } },
    },
    { tables, audit, vault: serviceVault, clock, randomness },
  );
  /** The purpose of a secret names the directory, so that a changed row can't send a key elsewhere. */
  const purposeOf = (kind: "account" | "binding", { directoryUrl }: { directoryUrl: string }) =>
    `${kind} ${directoryUrl}`;

  async function readSecret(reference: SecretReference, purpose: string): Promise<string> {
    const value = await secrets.read(reference, purpose);
    if (value !== undefined) return value;
    throw new Problem("conflict", "A key of the certificate authority is missing. Save the authority again.");
  }

  async function all(): Promise<Row<AuthorityRecord>[]> {
    const found: Row<AuthorityRecord>[] = [];
    const range = { partitionKey: AUTHORITIES, before: "a", onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(AuthorityRows, range)) found.push(...rows);
    return found;
  }

  async function get(authorityId: string): Promise<Row<AuthorityRecord>> {
    const id = authorityId.toUpperCase();
    const row = isUlid(id) ? await tables.get(AuthorityRows, AUTHORITIES, id) : undefined;
    if (row === undefined) throw notFound(`The certificate authority ${authorityId.slice(0, 64)}`);
    return row;
  }

  async function directoryOf(url: string): Promise<AcmeDirectory> {
    if (!URL.canParse(url) || new URL(url).protocol !== "https:")
      throw invalidBody("directoryUrl", "must be an https:// address");
    return await acme.directory(url).catch(asProblem);
  }

  async function test({ directoryUrl, profile, externalAccountBinding }: Parameters<Authorities["test"]>[0]) {
    const { meta, renewalInfo } = await directoryOf(directoryUrl);
    const profiles = Object.keys(meta.profiles ?? {});
    const problems: string[] = [];
    if (profile !== null && !profiles.includes(profile))
      problems.push(
        `The authority does not offer the profile ${profile}. It offers: ${profiles.join(", ") || "none"}.`,
      );
    if (meta.externalAccountRequired && !externalAccountBinding)
      problems.push("The authority requires an external account binding. Enter its key ID and HMAC key.");
    return {
      profiles,
      externalAccountRequired: meta.externalAccountRequired ?? false,
      renewalInformation: renewalInfo !== undefined,
      problems,
    };
  }

  /** Stores the keys of a new account and registers the account. */
  async function newAccount(
    change: AuthorityChange,
    binding: { keyId: string; hmacKey: string } | undefined,
    target: { type: string; id: string },
    caller: Caller,
  ): Promise<Pick<AuthorityRecord, "accountKey" | "accountUrl" | "bindingKey" | "bindingKeyId">> {
    const key = newAccountKey();
    const { directoryUrl, contacts } = change;
    const accountKey = await secrets.write(key, purposeOf("account", change));
    const bindingKey = binding && (await secrets.write(binding.hmacKey, purposeOf("binding", change)));
    const event = { type: "certificateAuthority.accountRegistered", caller, target, details: { directoryUrl } };
    const accountUrl = await audited(audit, event, async () => {
      const account = await acme.open({ directoryUrl, accountKey: key, binding });
      return await account.register(contacts).catch(asProblem);
    });
    return { accountKey, accountUrl, ...(binding && bindingKey && { bindingKey, bindingKeyId: binding.keyId }) };
  }

  const requireTested = async (change: Parameters<Authorities["test"]>[0]): Promise<void> => {
    const { problems } = await test(change);
    if (problems.length > 0) throw invalidBody("directoryUrl", `can't be used: ${problems.join(" ")}`);
  };

  const configured = ({ name, directoryUrl, contacts, preferredChain, profile, ...change }: AuthorityChange) => ({
    name,
    directoryUrl,
    contacts,
    ...(preferredChain !== null && { preferredChain }),
    ...(profile !== null && { profile }),
    certificatesPerDomain: change.certificatesPerDomain,
    budgetDays: change.budgetDays,
  });
  const shown = ({ name, directoryUrl, contacts, preferredChain, profile, bindingKeyId }: AuthorityRecord) => ({
    name,
    directoryUrl,
    contacts,
    preferredChain: preferredChain ?? null,
    profile: profile ?? null,
    bindingKeyId: bindingKeyId ?? null,
  });

  return {
    all,
    get,
    test,

    async add(change, caller) {
      await requireTested(change);
      const now = clock.now();
      const authorityId = randomness.ulid(now);
      const target = { type: "certificateAuthority", id: authorityId };
      const account = await newAccount(change, change.externalAccountBinding ?? undefined, target, caller);
      const at = now.toISOString();
      const record = {
        authorityId,
        ...configured(change),
        ...account,
        createdAt: at,
        updatedAt: at,
        updatedBy: caller.actor,
      };
      const event = { type: "certificateAuthority.added", caller, target, after: shown(record) };
      await audited(audit, event, () =>
        tables.transaction(TABLE, AUTHORITIES, [
          insert(AuthorityRows, authorityId, record),
          secrets.requireStored(account.accountKey),
          ...(account.bindingKey ? [secrets.requireStored(account.bindingKey)] : []),
        ]),
      );
      return await get(authorityId);
    },

    async replace(id, change, ifMatch, caller) {
      const row = await get(id);
      const { authorityId } = row;
      requireMatch(row.etag, ifMatch, "The certificate authority");
      const target = { type: "certificateAuthority", id: authorityId };
      const sameDirectory = change.directoryUrl === row.directoryUrl;
      const keptBinding =
        change.externalAccountBinding === undefined && sameDirectory && row.bindingKey && row.bindingKeyId !== undefined
          ? { keyId: row.bindingKeyId, hmacKey: await readSecret(row.bindingKey, purposeOf("binding", row)) }
          : undefined;
      const binding = change.externalAccountBinding ?? keptBinding;
      await requireTested({ ...change, externalAccountBinding: binding });
      const needsAccount = !sameDirectory || change.externalAccountBinding != null;
      const { accountKey, accountUrl, bindingKey, bindingKeyId } = row;
      const kept = {
        accountKey,
        accountUrl,
        ...(binding && bindingKey && bindingKeyId !== undefined && { bindingKey, bindingKeyId }),
      };
      const account = needsAccount ? await newAccount(change, binding, target, caller) : kept;
      const at = clock.now().toISOString();
      const record: AuthorityRecord = {
        authorityId,
        ...configured(change),
        ...account,
        createdAt: row.createdAt,
        updatedAt: at,
        updatedBy: caller.actor,
      };
      const event = {
        type: "certificateAuthority.changed",
        caller,
        target,
        before: shown(row),
        after: shown(record),
      };
      await audited(audit, event, () =>
        conditionalWrite(
          tables.transaction(TABLE, AUTHORITIES, [
            replace(AuthorityRows, row.rowKey, record, row.etag),
            secrets.requireStored(record.accountKey),
          ]),
          ifMatch,
          "The certificate authority",
        ),
      );
      // Earlier keys are deleted by the clean-up, a day later.
      return await get(authorityId);
    },

    async remove(id, caller) {
      const row = await get(id);
      const { authorityId } = row;
      for await (const rows of tables.pages(Policies, { partitionKey: POLICIES, onCorrupt: "leaveOut" })) {
        const policy = rows.find((one) => isPolicyOf(one, authorityId));
        if (policy)
          throw new Problem(
            "conflict",
            `The renewal policy of ${policy.assetId} names this authority. Change it first.`,
          );
      }
      const target = { type: "certificateAuthority", id: authorityId };
      await audited(audit, { type: "certificateAuthority.removed", caller, target, before: shown(row) }, async () => {
        await tables.remove(AuthorityRows, AUTHORITIES, authorityId, row.etag);
        await secrets.remove(row.accountKey);
        if (row.bindingKey) await secrets.remove(row.bindingKey);
      });
    },

    async open(authority) {
      const { directoryUrl, accountUrl, accountKey } = withoutKeys(authority);
      const key = await readSecret(accountKey, purposeOf("account", authority));
      return await acme.open({ directoryUrl, accountUrl, accountKey: key });
    },

    async cleanUp(caller) {
      let isComplete = true;
      const references: SecretReference[] = [];
      const range = {
        partitionKey: AUTHORITIES,
        before: "a",
        onCorrupt: ({ message }: Error) => {
          log.error(message);
          isComplete = false;
        },
      };
      for await (const rows of tables.pages(AuthorityRows, range))
        references.push(
          ...rows.flatMap(({ accountKey, bindingKey }) => [accountKey, ...(bindingKey ? [bindingKey] : [])]),
        );
      // An authority that can't be read may reference any key.
      if (isComplete) await secrets.cleanUp(references, caller);
    },
  };
}

/** Converts a failure of an authority to the problem of a request. */
export function asProblem(error: unknown): never {
  if (!(error instanceof AcmeFailure)) throw error;
  if (error.isTransient) throw retryLater("unavailable", error.message, error.retryAfterSeconds ?? 60);
  if (error.type === "blocked") throw invalidBody("directoryUrl", error.message);
  throw new Problem("conflict", error.message);
}
