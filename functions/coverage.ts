import * as z from "zod";
import { ASSET_TYPES } from "../shared/inventory/asset.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { countOfLeftOut } from "../shared/platform/incomplete-answer.ts";
import type { SubscriptionCoverage } from "../shared/subscriptions/subscriptions.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * The endpoint of coverage: how many of the known subscriptions, vaults, applications and B2C tenants the service reads. It
 * combines several areas, so its schema is here instead of in one of them.
 */

/**
 * Maximum numbers of gaps in an answer, by kind. Lists with all gaps exist: /subscriptions, /api/assets/discovery/vaults and
 * /b2c/tenants.
 */
const MAX_SUBSCRIPTION_GAPS = 10;
const MAX_VAULT_GAPS = 5;
const MAX_TENANT_GAPS = 10;

const Share = z.object({
  total: z.int().min(0).meta({ description: "Number that the service knows." }),
  read: z.int().min(0).meta({ description: "Number that the last scan or discovery read completely." }),
});
const GAP_KINDS = [
  "subscriptionList",
  "subscription",
  "vault",
  "applications",
  "b2cTenant",
  "scan",
  "storedRows",
] as const;
const Gap = z
  .object({
    kind: z.enum(GAP_KINDS).meta({
      description:
        "Resource that was not read. `subscriptionList`: the list of subscriptions itself. `scan`: the last scan of all subscriptions did not complete, or there was none. `storedRows`: stored rows can't be read, so that the numbers leave out what they describe.",
    }),
    name: z.string().meta({ description: "Name of the resource." }),
    message: z.string().meta({ description: "Why the resource was not read." }),
    remedy: z.string().meta({ description: "How to fix the gap. Names the missing role, if a role is missing." }),
    at: z.iso.datetime().nullable().meta({ description: "Time of the failure. Null if nothing was tried yet." }),
  })
  .meta({ id: "CoverageGap" });
type Gap = z.infer<typeof Gap>;

const Coverage = z
  .object({
    complete: z.boolean().meta({
      description: "True if the last scan of all subscriptions completed and nothing is missing. Never true before it.",
    }),
    summary: z.string().meta({
      description: "The numbers as text. Vaults are `known vaults` while a subscription is unread.",
      example: "3 of 4 subscriptions, 30 of 32 known vaults, 40 of 41 applications",
    }),
    subscriptions: Share.meta({ description: "Watched subscriptions." }),
    vaults: Share.meta({
      description: "Known vaults of watched subscriptions. Vaults of an unread subscription count as unread.",
    }),
    applications: Share.nullable().meta({ description: "Applications of the tenant. Null without a PRO license." }),
    b2cTenants: Share.nullable().meta({
      description: "Registered B2C tenants. Null without a PRO license, or if none.",
    }),
    gaps: z.array(Gap).meta({
      description: `Resources that were not read, those that hide the most first: up to ${MAX_SUBSCRIPTION_GAPS} subscriptions, ${MAX_VAULT_GAPS} vaults and ${MAX_TENANT_GAPS} B2C tenants.`,
    }),
    gapsTotal: z.int().min(0).meta({ description: "Number of all gaps." }),
  })
  .meta({ id: "Coverage" });
type Coverage = z.infer<typeof Coverage>;

const getCoverage = endpoint({
  name: "getCoverage",
  method: "GET",
  route: "api/coverage",
  summary: "Get the coverage of scans and discoveries",
  description:
    "Returns how many subscriptions, vaults, applications and B2C tenants the last scans and discoveries read, and the gaps with their fixes. Resources that the service's identity can't list are unknown, so they are not part of the totals.",
  tag: "Discovery",
  access: "user",
  tier: "core",
  responds: { 200: Coverage },
  handle: async ({ services }) => ok(await readCoverage(services)),
});

export const endpoints = [getCoverage];

type CoverageServices = Pick<Services, "subscriptions" | "inventory" | "applications" | "b2c" | "licensing">;

async function readCoverage(services: CoverageServices): Promise<Coverage> {
  const isLicensed = (await services.licensing.tier()) === "pro";
  const [azure, applications, b2c] = await Promise.all([
    services.subscriptions.coverage(),
    isLicensed ? readApplications(services) : NOT_COUNTED,
    isLicensed ? readTenants(services) : NOT_COUNTED,
  ]);
  const { subscriptions, vaults, unread } = azure;
  const failingVaults = vaults.read < vaults.total ? await readFailingVaults(services) : NO_VAULTS;
  const subscriptionGaps = unread.slice(0, MAX_SUBSCRIPTION_GAPS).map(gapOfSubscription);
  const otherGaps = [...gapOfList(azure), ...gapOfScan(azure, failingVaults.total)];
  const storedRowGaps = gapOfLeftOutRows();
  const gapsTotal =
    otherGaps.length +
    unread.length +
    failingVaults.total +
    applications.gaps.length +
    b2c.gaps.length +
    storedRowGaps.length;
  return {
    complete: gapsTotal === 0,
    summary: [
      shareText(subscriptions, azure.lastFailure ? "known subscription" : "subscription"),
      // An unread subscription can have any number of further vaults.
      shareText(vaults, azure.lastFailure || subscriptions.read < subscriptions.total ? "known vault" : "vault"),
      ...(applications.share ? [shareText(applications.share, "application")] : []),
      ...(b2c.share ? [shareText(b2c.share, "B2C tenant")] : []),
    ].join(", "),
    subscriptions,
    vaults,
    applications: applications.share,
    b2cTenants: b2c.share,
    gaps: [
      ...otherGaps,
      ...subscriptionGaps,
      ...failingVaults.gaps,
      ...applications.gaps,
      ...b2c.gaps.slice(0, MAX_TENANT_GAPS),
      ...storedRowGaps,
    ],
    gapsTotal,
  };
}

const shareText = ({ read, total }: z.infer<typeof Share>, noun: string): string =>
  `${read.toLocaleString("en")} of ${total.toLocaleString("en")} ${noun}${total === 1 ? "" : "s"}`;

interface DirectoryCoverage {
  share: z.infer<typeof Share> | null;
  gaps: Gap[];
}
/** The coverage of a kind of directory that the answer doesn't count: without a license, or without a registered tenant. */
const NOT_COUNTED: DirectoryCoverage = { share: null, gaps: [] };
const NO_VAULTS = { total: 0, gaps: [] as Gap[] };

function gapOfSubscription({ name, lastScan, lastFailure }: SubscriptionCoverage["unread"][number]): Gap {
  const { message, remedy, at } = lastFailure ?? {
    message: lastScan
      ? "The last scan ended before it had read all vaults of the subscription."
      : "No scan has read this subscription yet.",
    remedy: "Start a scan.",
    at: lastScan?.finishedAt ?? null,
  };
  return { kind: "subscription", name, message, remedy, at };
}

const gapOfList = ({ lastFailure }: SubscriptionCoverage): Gap[] =>
  lastFailure
    ? [
        {
          kind: "subscriptionList",
          name: "The list of subscriptions",
          message: lastFailure.message,
          remedy: lastFailure.remedy,
          at: lastFailure.at,
        },
      ]
    : [];

/** How an incomplete scan ended, as a verb. */
const ENDS: Partial<Record<NonNullable<SubscriptionCoverage["lastScan"]>["status"], string>> = {
  partial: "was only partially completed",
  failed: "failed",
  timedOut: "timed out",
  cancelled: "was canceled",
};

/**
 * Returns a gap for an incomplete scan, unless other gaps already explain it. A scan can be incomplete although it read every
 * subscription and vault, for example if it could not read their diagnostic settings.
 */
function gapOfScan({ lastScan, lastFailure, unread }: SubscriptionCoverage, failingVaults: number): Gap[] {
  const name = "The scan of all subscriptions";
  if (!lastScan) {
    const message = "No scan of all subscriptions has finished yet.";
    return [{ kind: "scan", name, message, remedy: "Start a scan.", at: null }];
  }
  if (lastScan.status === "completed" || lastFailure || unread.length > 0 || failingVaults > 0) return [];
  const message = `The last scan of all subscriptions ${ENDS[lastScan.status] ?? "did not complete"}.`;
  const remedy = `GET /api/assets/discovery/scan/${lastScan.scanId}/results shows the parts that were not read.`;
  return [{ kind: "scan", name, message, remedy, at: lastScan.finishedAt }];
}

/**
 * Returns a gap for unreadable rows, which the reads of this request left out. The subscription, vault or tenant of such a row
 * is missing in all lists and numbers.
 */
function gapOfLeftOutRows(): Gap[] {
  const count = countOfLeftOut();
  if (count === 0) return [];
  const message = `${count.toLocaleString("en")} stored ${count === 1 ? "row" : "rows"} can't be read.`;
  const remedy = "Find them in the audit log (storage.rowUnreadable), and restore them from a backup.";
  return [{ kind: "storedRows", name: "The stored data", message, remedy, at: null }];
}

async function readFailingVaults({ inventory }: CoverageServices): Promise<typeof NO_VAULTS> {
  const filter = { failing: true, outOfScope: false };
  const page = await inventory.vaults(filter, { limit: MAX_VAULT_GAPS, offset: 0, cursor: undefined });
  return {
    total: page.total ?? page.items.length,
    gaps: page.items.flatMap(({ vault: { name, failures } }): Gap[] => {
      const failure = ASSET_TYPES.map((list) => failures[list]).find((listFailure) => listFailure !== undefined);
      return failure ? [{ kind: "vault", name, message: failure.message, remedy: failure.remedy, at: failure.at }] : [];
    }),
  };
}

async function readApplications({ applications }: CoverageServices): Promise<DirectoryCoverage> {
  const { total, read, failures, isDiscovered } = await applications.coverage();
  const notDiscovered: Gap = {
    kind: "applications",
    name: "Applications",
    message: "No discovery of applications has ended in the last 30 days.",
    remedy: "Discover applications on the Rotation page, or with POST /api/automation/rotation/discover.",
    at: null,
  };
  const gaps = failures.map(
    ({ message, remedy, at }): Gap => ({ kind: "applications", name: "Applications", message, remedy, at }),
  );
  return { share: { total, read }, gaps: isDiscovered ? gaps : [notDiscovered] };
}

async function readTenants({ b2c }: CoverageServices): Promise<DirectoryCoverage> {
  const tenants = await b2c.registered();
  if (tenants.length === 0) return NOT_COUNTED;
  const gaps = tenants.flatMap(({ row, status: { failures = [], ended } }): Gap[] => {
    const notDiscovered = { message: "The tenant was not read yet.", remedy: "Discover its credentials.", at: null };
    const failure = failures[0] ?? (ended === undefined ? notDiscovered : undefined);
    if (!failure) return [];
    const { message, remedy, at } = failure;
    return [{ kind: "b2cTenant", name: row.displayName, message, remedy, at }];
  });
  return { share: { total: tenants.length, read: tenants.length - gaps.length }, gaps };
}
