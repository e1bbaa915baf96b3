import * as z from "zod";
import { assetId, titleOfCredential } from "../shared/inventory/asset.ts";
import { type Moment, STATUSES } from "../shared/inventory/asset-status.ts";
import type { FoundAsset } from "../shared/inventory/query.ts";
import { statusOfAsset } from "../shared/inventory/renewal.ts";
import { type Access, type Actor, mayCall, type Tier } from "../shared/platform/http/endpoint.ts";
import type { PageRequest } from "../shared/platform/http/paging.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { singleLine } from "../shared/platform/http/single-line.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * The endpoint of the search. It combines the lists of several areas, so its schema is here instead of in one of them. Each kind
 * is searched like its own list: with the same role, the same license and the same limit of rows per call.
 */

const KINDS = ["asset", "vault", "application", "violation", "rule", "user"] as const;
type Kind = (typeof KINDS)[number];

const MIN_CHARACTERS = 2;
const MAX_CHARACTERS = 120;
/** Number of items of each kind in an answer. */
const MAX_ITEMS = 8;
/** Number of users that one call examines. */
const MAX_USERS = 1000;

const SearchItem = z
  .object({
    kind: z.enum(KINDS).meta({ description: "Kind of the object." }),
    id: z.string().meta({
      description:
        "ID of the object in its own list: of an asset, an application, an alert rule or a user; name of a vault; for `violation`, ID of a failing check.",
    }),
    title: z.string().meta({ description: "Name to show. For `violation`, the title of the failure." }),
    detail: z.string().meta({
      description: "Where the object is, or its numbers. Empty if there is nothing to add.",
      example: "secret in kv-payments-prod, Acme Production",
    }),
    status: z.enum(STATUSES).nullable().meta({ description: "Status of an asset. Null for other kinds." }),
  })
  .meta({ id: "SearchItem" });
type SearchItem = z.infer<typeof SearchItem>;

const Group = z
  .object({
    kind: z.enum(KINDS).meta({
      description:
        "Kind of the items. `violation`: checks that fail, by their title. The kinds that the caller may not list are left out.",
    }),
    items: z.array(SearchItem).meta({ description: `Up to ${MAX_ITEMS} matches.` }),
    total: z.int().min(0).nullable().meta({ description: "Number of matches. Null if not everything was examined." }),
    complete: z.boolean().meta({
      description:
        "False if the search did not examine everything of this kind: it examines up to 10,000 rows a call. For assets it then also finds every name that starts with the text, because names have an index.",
    }),
  })
  .meta({ id: "SearchGroup" });
type Result = Omit<z.infer<typeof Group>, "kind">;

const SearchResult = z
  .object({
    query: z.string().meta({ description: "The text that was searched for.", example: "payments" }),
    complete: z.boolean().meta({ description: "Whether all groups are complete." }),
    groups: z.array(Group).meta({ description: "Kinds with matches, and kinds that were not examined completely." }),
  })
  .meta({ id: "SearchResult" });

/** How one kind is searched. `access` and `tier`: those of the endpoint that lists the kind. */
interface Source {
  kind: Kind;
  access: Exclude<Access, "open">;
  tier: Tier;
  find(text: string, services: SearchServices): Promise<Result>;
}
type SearchServices = Pick<Services, "inventory" | "applications" | "compliance" | "alerts" | "access">;

const SOURCES: readonly Source[] = [
  { kind: "asset", access: "user", tier: "core", find: findAssets },
  { kind: "vault", access: "user", tier: "core", find: findVaults },
  { kind: "application", access: "user", tier: "pro", find: findApplications },
  { kind: "violation", access: "user", tier: "core", find: findViolations },
  { kind: "rule", access: "user", tier: "core", find: findRules },
  { kind: "user", access: "admin", tier: "pro", find: findUsers },
];

const search = endpoint({
  name: "search",
  method: "GET",
  route: "api/search",
  summary: "Search assets, vaults, applications, violations, rules and users",
  description: `Finds objects by a part of their name, ignoring case. Returns only kinds that the caller's role and the license allow to list. Each kind is searched like its own list: a call examines up to 10,000 rows of it, and \`complete\` is false if there are more.`,
  tag: "Discovery",
  access: "user",
  tier: "core",
  query: z.strictObject({
    q: singleLine(MAX_CHARACTERS)
      .min(MIN_CHARACTERS, `must have at least ${MIN_CHARACTERS} characters`)
      .meta({ description: `Part of a name, ${MIN_CHARACTERS} to ${MAX_CHARACTERS} characters.` }),
  }),
  example: { query: { q: "payments" } },
  responds: { 200: SearchResult },
  handle: async ({ query: { q }, actor, services }) => {
    const tier = await services.licensing.tier();
    const allowedSources = SOURCES.filter((source) => mayList(source, actor, tier));
    const groups = await Promise.all(
      allowedSources.map(async ({ kind, find }) => ({ kind, ...(await find(q, services)) })),
    );
    return ok({
      query: q,
      complete: groups.every(({ complete }) => complete),
      groups: groups.filter(({ items, complete }) => items.length > 0 || !complete),
    });
  },
});

export const endpoints = [search];

const mayList = ({ access, tier: required }: Source, { role }: Pick<Actor, "role">, tier: Tier): boolean =>
  mayCall(role, access) && (required === "core" || tier === "pro");

const FIRST_PAGE: PageRequest = { limit: MAX_ITEMS, offset: 0, cursor: undefined };

/**
 * Finds assets by a part of their name. If the inventory is too large to examine all names, also finds assets by the start of their
 * name, which has an index.
 */
async function findAssets(text: string, { inventory }: SearchServices): Promise<Result> {
  const moment = await inventory.moment();
  const { items, total } = await inventory.assets.list({ search: text }, FIRST_PAGE, moment);
  if (total !== null) return { items: items.map((asset) => assetItem(asset, moment)), total, complete: true };
  const byStart = await inventory.assets.list({ namePrefix: text }, FIRST_PAGE, moment);
  const merged = new Map(
    [...byStart.items, ...items].map((asset) => assetItem(asset, moment)).map((item) => [item.id, item]),
  );
  return { items: [...merged.values()].slice(0, MAX_ITEMS), total: null, complete: false };
}

function assetItem({ asset, subscriptionName }: FoundAsset, moment: Moment): SearchItem {
  const { name, type, credential, vaultName } = asset;
  return {
    kind: "asset",
    id: assetId(asset),
    title: credential ? titleOfCredential(credential) : name,
    detail: credential
      ? `${type} of an application`
      : [`${type} in ${vaultName}`, subscriptionName].filter(Boolean).join(", "),
    status: statusOfAsset(asset, moment),
  };
}

async function findVaults(text: string, { inventory }: SearchServices): Promise<Result> {
  const page = await inventory.vaults({ search: text }, FIRST_PAGE);
  return {
    items: page.items.map(({ vault: { name, subscriptionId }, subscriptionName }) => ({
      kind: "vault",
      id: name,
      title: name,
      detail: subscriptionName ?? subscriptionId,
      status: null,
    })),
    total: page.total,
    complete: true,
  };
}

async function findApplications(text: string, { applications }: SearchServices): Promise<Result> {
  const { items, total } = await applications.list({ search: text }, FIRST_PAGE);
  return {
    items: items.map(({ app: { appId, displayName, credentials } }) => ({
      kind: "application",
      id: appId,
      title: displayName,
      detail: counted(credentials.length, "credential"),
      status: null,
    })),
    total,
    complete: total !== null,
  };
}

/**
 * Finds failing checks by their title or ID. A check stands for its violations, whose number can be large. The breakdown lists
 * checks whose violations are all exempt last.
 */
async function findViolations(text: string, { compliance }: SearchServices): Promise<Result> {
  const { checks } = await compliance.breakdown();
  const matches = checks.filter(({ id, title }) => contains(title, text) || contains(id, text));
  return {
    items: matches.slice(0, MAX_ITEMS).map(({ id, title, severity, failed, exempted }) => ({
      kind: "violation",
      id,
      title,
      detail: `${failed > 0 ? counted(failed, "violation") : `no open violation, ${exempted.toLocaleString("en")} exempt`}, ${severity}`,
      status: null,
    })),
    total: matches.length,
    complete: true,
  };
}

async function findRules(text: string, { alerts }: SearchServices): Promise<Result> {
  const matches = (await alerts.rules.all()).filter(({ name }) => contains(name, text));
  return {
    items: matches.slice(0, MAX_ITEMS).map(({ ruleId, name, enabled }) => ({
      kind: "rule",
      id: ruleId,
      title: name,
      detail: enabled ? "" : "disabled",
      status: null,
    })),
    total: matches.length,
    complete: true,
  };
}

async function findUsers(text: string, { access }: SearchServices): Promise<Result> {
  const { items, nextCursor } = await access.users.list({ limit: MAX_USERS, offset: 0, cursor: undefined });
  const matches = items.filter(({ username, email }) => contains(username, text) || contains(email ?? "", text));
  return {
    items: matches.slice(0, MAX_ITEMS).map(({ id, username, role }) => ({
      kind: "user",
      id,
      title: username,
      detail: role,
      status: null,
    })),
    total: nextCursor === null ? matches.length : null,
    complete: nextCursor === null,
  };
}

const contains = (text: string, part: string): boolean => text.toLowerCase().includes(part.toLowerCase());
const counted = (count: number, noun: string): string =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
