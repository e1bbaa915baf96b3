import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { entityTag, requireMatch } from "../http/conditional.ts";
import type { Caller } from "../http/endpoint.ts";
import { invalidBody } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import { repeatOnConflict } from "../storage/conflict.ts";
import { entity, type Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";

/** Entries of the table: one row of storage holds them all. */
export const MAX_OWNERS = 2000;
/** Characters of all of them: a row holds 1 MiB, two bytes a character. */
const MAX_TABLE_CHARACTERS = 500_000;
/** Of a tag's value: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
export const MAX_OWNER_CHARACTERS = 256;

const OwnersRecord = z.object({
  /** The addresses by the owner's name as tags write it, in lower case. */
  addresses: z.record(z.string(), z.string()),
  /** How the names were written. */
  names: z.record(z.string(), z.string()),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
type OwnersRecord = z.infer<typeof OwnersRecord>;
const OwnersRow = entity("AlertOwners", OwnersRecord);
const OWNERS = "owners";
const OWNERS_ROW = "0";

export interface OwnerAddress {
  /** As tags write it. */
  owner: string;
  address: string;
}

/** The administrators' table of owners. */
export interface OwnersTable {
  owners: OwnerAddress[];
  updatedAt: string | null;
  updatedBy: string | null;
  etag: string;
}

/** Where an owner's alerts go, or why they go to nobody. */
export type Resolved = { address: string } | { reason: string };

/** Who gets the alerts of an owner whom a tag names. */
export interface Owners {
  /** One request. */
  table(): Promise<OwnersTable>;
  /**
   * Replaces the table.
   *
   * @throws {Problem} invalidRequest for an owner named twice; preconditionFailed when `ifMatch` is stale.
   */
  replace(owners: readonly OwnerAddress[], caller: Caller, ifMatch: string | undefined): Promise<OwnersTable>;
  /** How owners are resolved now; undefined while neither a domain nor an entry of the table is there. One request. */
  resolver(): Promise<((owner: string | undefined) => Resolved) | undefined>;
}

/** What the table is before the first entry. */
const EMPTY = { addresses: {}, names: {} };
const EMPTY_ETAG = '"none"';

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
      const wanted = recordOf(owners, clock.now(), caller.actor);
      const first = await read();
      requireMatch(first?.etag ?? EMPTY_ETAG, ifMatch, "The table of owners");
      const event = {
        type: "alertOwners.changed",
        caller,
        target: { type: "alertOwners", id: OWNERS },
        details: changeOf(first?.addresses ?? {}, wanted.addresses),
      };
      return await audited(audit, event, () =>
        repeatOnConflict(async (attempt) => {
          const row = attempt === 1 ? first : await read();
          requireMatch(row?.etag ?? EMPTY_ETAG, ifMatch, "The table of owners");
          return tableOf(
            row
              ? await tables.replace(OwnersRow, { ...row, ...wanted })
              : await tables.insert(OwnersRow, OWNERS, OWNERS_ROW, wanted),
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

const ADDRESS = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+$/;
/** RFC 5321, section 4.5.3.1: 254 characters between the brackets of a path. */
const MAX_ADDRESS = 254;

/**
 * Whoever can write a tag chooses what stands in it. So it is an address only as a whole, in plain letters and of a domain that
 * the configuration names exactly, or it is what the administrators' table has, letter for letter but for the case of A to Z.
 */
function resolve(owner: string | undefined, addresses: Record<string, string>, domains: readonly string[]): Resolved {
  if (owner === undefined || owner === "") return { reason: "it names no owner" };
  const key = lowerCased(owner);
  if (Object.hasOwn(addresses, key)) return { address: addresses[key]! };
  if (domains.length === 0) return { reason: "the table of owners does not have its owner" };
  if (owner.length <= MAX_ADDRESS && ADDRESS.test(owner) && domains.includes(key.slice(key.indexOf("@") + 1)))
    return { address: key };
  return { reason: "its owner is neither an address under ALERT_OWNER_DOMAINS nor in the table of owners" };
}

/** Of A to Z alone: other letters have lower cases that look like, or are, those of the alphabet. */
const lowerCased = (text: string): string => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

function recordOf(owners: readonly OwnerAddress[], now: Date, actor: string): OwnersRecord {
  const [addresses, names]: Record<string, string>[] = [{}, {}];
  for (const [index, { owner, address }] of owners.entries()) {
    const key = lowerCased(owner);
    if (Object.hasOwn(addresses!, key)) throw invalidBody(`owners.${index}.owner`, "is in the list twice");
    addresses![key] = address;
    names![key] = owner;
  }
  if (JSON.stringify([addresses, names]).length > MAX_TABLE_CHARACTERS)
    throw invalidBody("owners", "are too many for names and addresses of this length");
  return { addresses: addresses!, names: names!, updatedAt: now.toISOString(), updatedBy: actor };
}

const tableOf = (row: Row<OwnersRecord> | undefined): OwnersTable => ({
  owners: Object.entries(row?.addresses ?? {}).map(([key, address]) => ({ owner: row!.names[key] ?? key, address })),
  updatedAt: row?.updatedAt ?? null,
  updatedBy: row?.updatedBy ?? null,
  etag: row ? entityTag(row) : EMPTY_ETAG,
});

/** Owners named in an audit entry, which has its limit. */
const MAX_NAMED = 50;

function changeOf(before: Record<string, string>, after: Record<string, string>) {
  const added = Object.keys(after).filter((owner) => !Object.hasOwn(before, owner));
  const removed = Object.keys(before).filter((owner) => !Object.hasOwn(after, owner));
  const changed = Object.keys(after).filter((owner) => Object.hasOwn(before, owner) && before[owner] !== after[owner]);
  const shown = (owners: readonly string[]) =>
    owners.slice(0, MAX_NAMED).map((owner) => ({ owner, before: before[owner] ?? null, after: after[owner] ?? null }));
  return {
    added: added.length,
    changed: changed.length,
    removed: removed.length,
    entries: shown([...added, ...changed, ...removed]),
  };
}
