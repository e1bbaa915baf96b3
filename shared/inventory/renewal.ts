import * as z from "zod";
import { DAY_SECONDS } from "../platform/time.ts";
import { type Moment, type Status, statusOf } from "./asset-status.ts";

/**
 * Who renews a certificate and when, and the status that follows. Pure functions of the stored facts.
 *
 * A certificate with a known renewer has a *plan*, which is stored with the asset. The plan decides in which index the asset
 * is (asset-keys.ts). It depends on neither the clock nor the settings, so that a certificate becomes late without a write.
 * All times are whole unix seconds.
 */

export const RENEWERS = ["keyVaultPolicy", "acmebot", "certManager", "thisService", "observed", "none"] as const;
export type Renewer = (typeof RENEWERS)[number];

/**
 * Names of renewers: `label` for lists and messages, `subject` as the subject of a sentence. The page has a copy
 * (parts/renewers.ts).
 */
export const RENEWER_NAMES: Record<Renewer, { label: string; subject: string }> = {
  keyVaultPolicy: { label: "Key Vault policy", subject: "Its policy" },
  acmebot: { label: "Acmebot", subject: "Acmebot" },
  certManager: { label: "cert-manager", subject: "cert-manager" },
  thisService: { label: "This service", subject: "This service" },
  observed: { label: "Unknown, but renewed regularly", subject: "An unknown renewer" },
  none: { label: "No one", subject: "No one" },
};

/** Sources of a renewal window: ARI (RFC 9773), the vault's policy, the gaps between earlier versions, or the renewer's tags. */
export const WINDOW_SOURCES = ["ari", "policy", "cadence", "tags"] as const;
type WindowSource = (typeof WINDOW_SOURCES)[number];

/** Maximum number of renewals that are stored and shown: the newest ones. */
const MAX_RENEWALS = 5;
/** Maximum number of versions that are stored: each renewal's version, and the version that the first of them replaced. */
export const MAX_VERSION_DATES = MAX_RENEWALS + 1;

/** When a policy renews a certificate. Both members are absent if the policy does not state it. */
export const RenewalTrigger = z.object({
  lifetimePercentage: z.int().optional(),
  daysBeforeExpiry: z.int().optional(),
});
export type RenewalTrigger = z.infer<typeof RenewalTrigger>;

/** One version of a certificate: created, valid from (null if not set), expires (null if never). */
export const VersionDates = z.tuple([z.int(), z.int().nullable(), z.int().nullable()]);
export type VersionDates = z.infer<typeof VersionDates>;

/** The window that a certificate authority suggests (RFC 9773), when it was read, and when to read it again. */
export const AriWindow = z.object({
  windowStart: z.int(),
  windowEnd: z.int(),
  checkedAt: z.int(),
  retryAfter: z.int(),
});
export type AriWindow = z.infer<typeof AriWindow>;

/** Who renews a certificate and when, as stored with the asset. */
export const RenewalPlan = z.object({
  renewedBy: z.enum(RENEWERS).exclude(["none"]),
  source: z.enum(WINDOW_SOURCES).optional(),
  windowStart: z.int().optional(),
  windowEnd: z.int().optional(),
  /**
   * First second in which the certificate may be other than healthy, under any settings. This is after the window, or a third
   * of the lifetime before the expiry if no window is known.
   */
  attentionAt: z.int(),
});
export type RenewalPlan = z.infer<typeof RenewalPlan>;

/** The stored facts of a certificate that decide its renewal. Members of `AssetRecord`. */
export interface RenewalFacts {
  notBefore?: number | undefined;
  createdOn?: number | undefined;
  expiresOn?: number | undefined;
  tags?: Record<string, string> | undefined;
  /** Whether the policy renews the certificate, rather than only notify its contacts. */
  autoRenew?: boolean | undefined;
  /** Issuer of the policy: `Self`, `Unknown`, or the name of an authority that is configured in the vault. */
  issuerName?: string | undefined;
  renewalTrigger?: RenewalTrigger | undefined;
  /** The newest versions, newest first. Undefined if they were not read. */
  versionDates?: VersionDates[] | undefined;
  ari?: AriWindow | undefined;
}

/** Renewal of a certificate at one time, for the API and the checks. */
export interface Renewal {
  renewedBy: Renewer;
  windowStart: number | undefined;
  windowEnd: number | undefined;
  source: WindowSource | undefined;
  /** Creation times of the latest versions, newest first, without the first version, which replaced none. */
  lastRenewals: number[];
  /** Whether the window has passed. */
  late: boolean;
}

interface Window {
  source: WindowSource;
  windowStart: number;
  windowEnd: number;
}

/** Returns who renews a certificate and when. Undefined without a renewer or without an expiry. */
export function renewalPlanOf(facts: RenewalFacts): RenewalPlan | undefined {
  const { expiresOn } = facts;
  const from = facts.notBefore ?? facts.createdOn;
  if (expiresOn === undefined || from === undefined || expiresOn <= from) return undefined;
  const cadence = cadenceOf(facts, from, expiresOn);
  const renewedBy = renewerOf(facts, cadence !== undefined);
  if (renewedBy === "none") return undefined;
  const candidates = [
    ariOf(facts, from, expiresOn),
    renewedBy === "keyVaultPolicy" ? policyWindowOf(facts, from, expiresOn) : undefined,
    cadence,
    renewedBy === "acmebot" || renewedBy === "certManager" ? tagsWindowOf(from, expiresOn) : undefined,
  ];
  const window = candidates.find((one) => one !== undefined);
  if (!window) return { renewedBy, attentionAt: expiresOn - Math.floor((expiresOn - from) / 3) };
  return { renewedBy, ...window, attentionAt: window.windowEnd + 1 };
}

/** Returns the renewal of a certificate. Without a renewer, the window is that of ARI, if it is known. */
export function renewalOf(facts: RenewalFacts & { renewal?: RenewalPlan | undefined }, now: number): Renewal {
  const { renewal: plan, versionDates = [] } = facts;
  const { windowStart, windowEnd } = plan ?? facts.ari ?? {};
  return {
    renewedBy: plan?.renewedBy ?? "none",
    windowStart,
    windowEnd,
    source: plan ? plan.source : facts.ari && "ari",
    lastRenewals: versionDates.slice(0, -1).map(([createdOn]) => createdOn),
    late: plan !== undefined && isLate(plan, now),
  };
}

/** Returns whether a plan's window has passed. @param now - Unix milliseconds. */
export const isLate = ({ windowEnd }: Pick<RenewalPlan, "windowEnd">, now: number): boolean =>
  windowEnd !== undefined && now >= (windowEnd + 1) * 1000;

const ACMEBOT = /^acmebot$/i;
const CERT_MANAGER = /^cert-manager$/i;
/** Prefix of the annotations of cert-manager, which synchronization tools copy to tags. */
const CERT_MANAGER_TAG = /^(?:cert-manager\.io|controller\.cert-manager\.io)\//i;
const MANAGER_TAGS = /^(?:issuer|managed-?by|renewed-?by|created-?by|app\.kubernetes\.io\/managed-by)$/i;

/** Returns who renews a certificate. Tags take precedence over the policy. Acmebot sets the tag `Issuer=Acmebot`. */
function renewerOf(facts: RenewalFacts, hasCadence: boolean): Renewer {
  const tags = Object.entries(facts.tags ?? {});
  const isManagedBy = (pattern: RegExp) =>
    tags.some(([name, value]) => MANAGER_TAGS.test(name) && pattern.test(value.trim()));
  if (isManagedBy(ACMEBOT)) return "acmebot";
  if (isManagedBy(CERT_MANAGER) || tags.some(([name]) => CERT_MANAGER_TAG.test(name))) return "certManager";
  // Key Vault renews self-signed certificates and those of integrated authorities. It can't renew those of unknown issuers.
  const { issuerName } = facts;
  if (facts.autoRenew && issuerName !== undefined && !/^unknown$/i.test(issuerName)) return "keyVaultPolicy";
  return hasCadence ? "observed" : "none";
}

/**
 * Share of the lifetime after which a renewal is too late to be regular. An ARI window that ends later is an error of the
 * authority. Renewals that happened later were probably made by people after an alert, so they don't prove a renewer. Both are
 * ignored, because they would suppress the alerts before expiry.
 */
const LATEST_RENEWAL = 0.9;

/** Returns ARI's window if it belongs to this version, which can't be renewed before it is valid or shortly before expiry. */
function ariOf({ ari }: RenewalFacts, from: number, expiresOn: number): Window | undefined {
  if (!ari || ari.windowEnd <= from || ari.windowEnd > from + LATEST_RENEWAL * (expiresOn - from)) return undefined;
  return { source: "ari", windowStart: ari.windowStart, windowEnd: ari.windowEnd };
}

/**
 * Time in which Key Vault and the authority complete a renewal: validation and approval can take days, but at most a quarter
 * of the time that remains.
 */
const POLICY_GRACE_SECONDS = 3 * DAY_SECONDS;

function policyWindowOf({ renewalTrigger }: RenewalFacts, from: number, expiresOn: number): Window | undefined {
  const { lifetimePercentage, daysBeforeExpiry } = renewalTrigger ?? {};
  const windowStart =
    lifetimePercentage !== undefined
      ? from + Math.floor(((expiresOn - from) * lifetimePercentage) / 100)
      : daysBeforeExpiry !== undefined
        ? expiresOn - daysBeforeExpiry * DAY_SECONDS
        : undefined;
  if (windowStart === undefined || windowStart >= expiresOn) return undefined;
  const start = Math.max(from, windowStart);
  return {
    source: "policy",
    windowStart: start,
    windowEnd: start + Math.min(POLICY_GRACE_SECONDS, Math.floor((expiresOn - start) / 4)),
  };
}

/**
 * Returns the default window of Acmebot and cert-manager: from a third of the lifetime before the expiry, at most 30 days, and
 * for a quarter of the remaining time.
 * https://cert-manager.io/docs/usage/certificate/
 */
function tagsWindowOf(from: number, expiresOn: number): Window {
  const before = Math.min(30 * DAY_SECONDS, Math.floor((expiresOn - from) / 3));
  const windowStart = expiresOn - before;
  return { source: "tags", windowStart, windowEnd: windowStart + Math.floor(before / 4) };
}

/** Share of the lifetime before which a new version is a correction, not a scheduled renewal. */
const EARLIEST_RENEWAL = 0.2;
/** A renewal that is later than the median by this share of the lifetime was an exception: the renewer failed once. */
const MAX_DELAY = 0.1;
/** Maximum difference between the shares of the lifetime at which regular renewals happened. */
const MAX_SPREAD = 0.25;
/**
 * The window ends this share of the lifetime after the latest of the earlier renewals, but at most halfway between that renewal
 * and the expiry.
 */
const CADENCE_GRACE = 0.1;

/**
 * Returns the window learned from the gaps between versions: the shares of their lifetime after which earlier versions were
 * replaced. Undefined with fewer than two regular renewals, if the gaps are irregular, or if they leave too little time.
 */
function cadenceOf({ versionDates = [] }: RenewalFacts, from: number, expiresOn: number): Window | undefined {
  const shares: number[] = [];
  for (let index = 0; index + 1 < versionDates.length; index++) {
    const [renewedAt] = versionDates[index]!;
    const [createdOn, notBefore, expiry] = versionDates[index + 1]!;
    const start = notBefore ?? createdOn;
    if (expiry === null || expiry <= start) continue;
    const share = (renewedAt - start) / (expiry - start);
    if (share >= EARLIEST_RENEWAL) shares.push(share);
  }
  shares.sort((a, b) => a - b);
  // With an even number the lower middle value, so that of two renewals the later one can be the exception.
  const median = shares[Math.floor((shares.length - 1) / 2)] ?? 0;
  const regular = shares.filter((share) => share <= median + MAX_DELAY);
  const [first = 0, last = 0] = [regular[0], regular.at(-1)];
  if (regular.length < 2 || last > LATEST_RENEWAL || last - first > MAX_SPREAD) return undefined;
  const lifetime = expiresOn - from;
  return {
    source: "cadence",
    windowStart: from + Math.round(first * lifetime),
    windowEnd: from + Math.round((last + Math.min(CADENCE_GRACE, (1 - last) / 2)) * lifetime),
  };
}

/** Days of the compliance policy. */
type Thresholds = Pick<Moment, "criticalDays" | "warningDays">;

/**
 * Returns the first seconds in which a certificate with a plan is `warning` and `critical`.
 * - Until `attentionAt` it is healthy.
 * - Without a window: `min(warningDays, lifetime / 3)` and `min(criticalDays, lifetime / 6)` before the expiry.
 * - After a window: `warning` at once, and `critical` when half of the remaining time has passed, or by days if that is sooner.
 */
export function renewalInstantsOf(
  { expiresOn, attentionAt, hasWindow }: PlannedCertificate,
  { criticalDays, warningDays }: Thresholds,
): { warningAt: number; criticalAt: number } {
  const criticalByDays = Math.ceil(expiresOn - criticalDays * DAY_SECONDS);
  const warningByDays = Math.ceil(expiresOn - warningDays * DAY_SECONDS);
  // Without a window, `attentionAt` is a third of the lifetime before the expiry, so half of that time is a sixth of it.
  const halfway = Math.ceil((attentionAt + expiresOn) / 2);
  const criticalAt = hasWindow
    ? Math.max(attentionAt, Math.min(halfway, criticalByDays))
    : Math.max(halfway, criticalByDays);
  const warningAt = hasWindow ? attentionAt : Math.max(attentionAt, warningByDays);
  return { warningAt: Math.min(warningAt, criticalAt), criticalAt };
}

/** A certificate with a plan, as far as it decides the status. */
export interface PlannedCertificate {
  expiresOn: number;
  attentionAt: number;
  hasWindow: boolean;
}

/** Returns the status of a certificate with a plan. */
export function statusByPlan(certificate: PlannedCertificate, moment: Moment): Status {
  const { expiresOn } = certificate;
  if (expiresOn * 1000 < moment.now) return "expired";
  const { warningAt, criticalAt } = renewalInstantsOf(certificate, moment);
  if (moment.now >= criticalAt * 1000) return "critical";
  return moment.now >= warningAt * 1000 ? "warning" : "healthy";
}

/** The members of an asset that decide its status. */
interface StatusFacts {
  expiresOn?: number | undefined;
  renewal?: Pick<RenewalPlan, "attentionAt" | "windowEnd"> | undefined;
}

const plannedOf = ({ expiresOn, renewal }: StatusFacts): PlannedCertificate | undefined =>
  expiresOn !== undefined && renewal
    ? { expiresOn, attentionAt: renewal.attentionAt, hasWindow: renewal.windowEnd !== undefined }
    : undefined;

/** Returns the status of an asset: by its plan if it has one, otherwise by days. */
export function statusOfAsset(facts: StatusFacts, moment: Moment): Status {
  const planned = plannedOf(facts);
  return planned ? statusByPlan(planned, moment) : statusOf(facts.expiresOn, moment);
}

/**
 * Returns whether the days until expiry matter for an asset. A certificate with a plan needs attention only once its window has
 * passed, or in the last third of its lifetime. @param now - Unix milliseconds.
 */
export const needsAttention = ({ renewal }: StatusFacts, now: number): boolean =>
  !renewal || now >= renewal.attentionAt * 1000;

/** Rules that decide a status. */
export const STATUS_RULES = ["days", "lifetime", "window"] as const;

/** Returns the rule that decides an asset's status, and a sentence that explains the status. */
export function explainStatus(
  facts: StatusFacts,
  moment: Moment,
): { rule: (typeof STATUS_RULES)[number]; reason: string } {
  const { criticalDays, warningDays } = moment;
  const planned = plannedOf(facts);
  const status = statusOfAsset(facts, moment);
  if (facts.expiresOn === undefined) return { rule: "days", reason: "The asset has no expiry date." };
  const utcText = (seconds: number) => `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
  if (!planned) {
    const reasons = {
      healthy: `The asset expires in more than ${warningDays} days.`,
      warning: `The asset expires within ${warningDays} days.`,
      critical: `The asset expires within ${criticalDays} days.`,
      expired: "The asset has expired.",
    };
    return { rule: "days", reason: reasons[status] };
  }
  const { warningAt, criticalAt } = renewalInstantsOf(planned, moment);
  const expiry = `The certificate expires on ${utcText(planned.expiresOn)}.`;
  if (status === "expired")
    return { rule: planned.hasWindow ? "window" : "lifetime", reason: "The certificate has expired." };
  if (!planned.hasWindow) {
    const starts = `Its status is warning from ${utcText(warningAt)} and urgent (critical) from ${utcText(criticalAt)}`;
    return {
      rule: "lifetime",
      reason: `${expiry} ${starts}: the days of the policy, but at most a third and a sixth of its lifetime before expiry.`,
    };
  }
  const windowEnd = utcText(planned.attentionAt - 1);
  if (status === "healthy")
    return { rule: "window", reason: `Its renewer has until ${windowEnd} to renew it. ${expiry}` };
  const lateReason = `Its renewer should have renewed it by ${windowEnd}. ${expiry}`;
  if (status === "warning")
    return { rule: "window", reason: `${lateReason} Its status becomes urgent (critical) on ${utcText(criticalAt)}.` };
  return moment.now >= (planned.expiresOn - criticalDays * DAY_SECONDS) * 1000
    ? { rule: "days", reason: `${lateReason} It expires within ${criticalDays} days.` }
    : { rule: "window", reason: `${lateReason} Half of the time between the two has passed.` };
}
