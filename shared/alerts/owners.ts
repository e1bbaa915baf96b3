import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { entityTag, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** The owner table, which maps the values of owner tags to mail addresses, and the resolution of tags. Tags are not trusted. */

/** Maximum number of entries, because one row stores the whole table. */
export const MAX_OWNERS = 2000;
/** Maximum number of characters: a row stores 1 MiB, two bytes per character. */
const MAX_TABLE_CHARACTERS = 500_000;
/** Limit of a tag value: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
export const MAX_OWNER_CHARACTERS = 256;

const OwnersRecord = z.object({
  /** Addresses by owner name in lower case. */
  addresses: z.record(z.string(), z.string()),
  /** Owner names in their original case. */
  names: z.record(z.string(), z.string()),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
type OwnersRecord = z.infer<typeof OwnersRecord>;
/**
 * Signed, because it decides where alerts are sent. `adopted`: unsigned rows of earlier versions are accepted until they are
 * signed. `listed`: the removal or an older state of the row is detected.
 */
export const OwnersRow = entity("AlertOwners", OwnersRecord, { signed: "adopted", listed: true });
export const OWNERS = "owners";
export const OWNERS_ROW = "0";

export interface OwnerAddress {
  /** The value of the owner tag. */
  owner: string;
  address: string;
}

/** The table of owners and their addresses. */
export interface OwnersTable {
  owners: OwnerAddress[];
  updatedAt: string | null;
  updatedBy: string | null;
  etag: string;
}

/** The address for an owner's alerts, or why there is none. */
export type Resolved = { address: string } | { reason: string };

/** The resolution of owner tags to mail addresses. */
export interface Owners {
  /** Returns the table. One request. */
  table(): Promise<OwnersTable>;
  /**
   * Replaces the table.
   *
   * @throws {Problem} invalidRequest for an owner named twice; preconditionFailed when `ifMatch` is stale.
   */
  replace(owners: readonly OwnerAddress[], caller: Caller, ifMatch: string | undefined): Promise<OwnersTable>;
  /** Returns the resolution function. Undefined if neither a domain nor a table entry exists. One request. */
  resolver(): Promise<((owner: string | undefined) => Resolved) | undefined>;
}

/** The table before the first entry. */
const EMPTY = { addresses: {}, names: {} };
const EMPTY_ETAG = '"none"';

/** Creates the store of the owner table, which maps owners to mail addresses. */
export function createOwners(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  /** Lower case. */
  domains: readonly string[];
  clock: Clock;
}): Owners {
  const { tables, audit, clock } = deps;
  const read = () => tables.get(OwnersRow, OWNERS, OWNERS_ROW);

  return {
    table: async () => tableOf(await read()),

    async replace(owners, caller, ifMatch) {
      const record = recordOf(owners, clock.now(), caller.actor);
      const first = await read();
      requireMatch(first?.etag ?? EMPTY_ETAG, ifMatch, "The table of owners");
      const event = {
        type: "alertOwners.changed",
        caller,
        target: { type: "alertOwners", id: OWNERS },
        details: changeOf(first?.addresses ?? {}, record.addresses),
      };
      return await audited(audit, event, () =>
        repeatOnConflict(async (attempt) => {
          const row = attempt === 1 ? first : await read();
          requireMatch(row?.etag ?? EMPTY_ETAG, ifMatch, "The table of owners");
          return tableOf(
            row
              ? await tables.replace(OwnersRow, { ...row, ...record })
              : await tables.insert(OwnersRow, OWNERS, OWNERS_ROW, record),
          );
        }),
      );
    },

    async resolver() {
      const { addresses } = (await read()) ?? EMPTY;
      if (deps.domains.length === 0 && Object.keys(addresses).length === 0) return undefined;
      return (owner) => resolve(owner, addresses, deps.domains);
    },
  };
}

/** A plain ASCII mail address without quotes or comments: `ann.lee@mail.acme.example`. */
const ADDRESS = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+$/;
/** RFC 5321, section 4.5.3.1: 254 characters between the brackets of a path. */
const MAX_ADDRESS = 254;

/**
 * Resolves an owner tag to an address. Anyone who can edit tags controls the value, so it is accepted only as a complete ASCII
 * address in a configured domain, or as an exact match in the table (case-insensitive for A to Z).
 */
function resolve(owner: string | undefined, addresses: Record<string, string>, domains: readonly string[]): Resolved {
  if (owner === undefined || owner === "") return { reason: "the owner tag is missing" };
  const key = toAsciiLowerCase(owner);
  if (Object.hasOwn(addresses, key)) return { address: addresses[key]! };
  if (domains.length === 0) return { reason: "the owner is not in the owner table" };
  if (owner.length <= MAX_ADDRESS && ADDRESS.test(owner) && domains.includes(key.slice(key.indexOf("@") + 1)))
    return { address: key };
  return { reason: "the owner is neither an address in ALERT_OWNER_DOMAINS nor in the owner table" };
}

/** Converts A to Z only. The lower case of some other letters is an ASCII letter (the Kelvin sign becomes k). */
const toAsciiLowerCase = (text: string): string => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

function recordOf(owners: readonly OwnerAddress[], now: Date, actor: string): OwnersRecord {
  const [addresses, names]: Record<string, string>[] = [{}, {}];
  for (const [index, { owner, address }] of owners.entries()) {
    const key = toAsciiLowerCase(owner);
    if (Object.hasOwn(addresses!, key)) throw invalidBody(`owners.${index}.owner`, "is a duplicate");
    addresses![key] = address;
    names![key] = owner;
  }
  if (JSON.stringify([addresses, names]).length > MAX_TABLE_CHARACTERS)
    throw invalidBody("owners", `must have at most ${MAX_TABLE_CHARACTERS.toLocaleString("en")} characters in total`);
  return { addresses: addresses!, names: names!, updatedAt: now.toISOString(), updatedBy: actor };
}

const tableOf = (row: Row<OwnersRecord> | undefined): OwnersTable => ({
  owners: Object.entries(row?.addresses ?? {}).map(([key, address]) => ({ owner: row!.names[key] ?? key, address })),
  updatedAt: row?.updatedAt ?? null,
  updatedBy: row?.updatedBy ?? null,
  etag: row ? entityTag(row) : EMPTY_ETAG,
});

/** Maximum number of owners in an audit entry, because its size is limited. */
const MAX_NAMED = 50;

function changeOf(before: Record<string, string>, after: Record<string, string>) {
  const added = Object.keys(after).filter((owner) => !Object.hasOwn(before, owner));
  const removed = Object.keys(before).filter((owner) => !Object.hasOwn(after, owner));
  const changed = Object.keys(after).filter((owner) => Object.hasOwn(before, owner) && before[owner] !== after[owner]);
  const changeEntries = (owners: readonly string[]) =>
    owners.slice(0, MAX_NAMED).map((owner) => ({ owner, before: before[owner] ?? null, after: after[owner] ?? null }));
  return {
    added: added.length,
    changed: changed.length,
    removed: removed.length,
    entries: changeEntries([...added, ...changed, ...removed]),
  };
}
