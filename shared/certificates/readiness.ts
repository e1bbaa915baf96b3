import { PUBLIC_CERTIFICATE_LIMITS, publicLimitAt } from "../compliance/limits.ts";
import { isPubliclyTrusted, isSelfSigned, validityDays, validityOf } from "../compliance/public-certificates.ts";
import type { AssetRecord } from "../inventory/asset.ts";
import type { RenewalCheck } from "../inventory/certificate-facts.ts";
import { RENEWERS, type Renewal, type Renewer, renewalOf } from "../inventory/renewal.ts";

/**
 * Determines whether certificates are ready for shorter lifetimes: how often each is renewed under the limits of public
 * authorities, who renews it, and which renewals would fail. Pure functions of the stored facts.
 */

/** Limits for which the renewals are counted, besides today's: the last two of the dated limits, 100 and 47 days. */
const [LIMIT_OF_2027, LIMIT_OF_2029] = PUBLIC_CERTIFICATE_LIMITS.slice(-2).map(({ days }) => days) as [number, number];
const YEAR_DAYS = 365;
/** Mean length of a month in the Gregorian calendar. */
const MONTH_DAYS = 365.2425 / 12;
/**
 * Maximum difference between the ordered and the issued validity, as a share of the ordered one. Policies order months, which
 * have 28 to 31 days, so the two are never exactly equal.
 */
const MAX_ORDER_DIFFERENCE = 0.1;
/** Maximum number of consumers that the text of a problem names. */
const MAX_NAMED_CONSUMERS = 3;

export const READINESS_PROBLEMS = [
  "importedByHand",
  "noRenewer",
  "renewerStopped",
  "pinnedConsumer",
  "keyNotExportable",
  "noOwner",
  "triggerTooEarly",
  "orderNotMet",
] as const;
type ReadinessProblem = (typeof READINESS_PROBLEMS)[number];

/** Renewals per year under today's limit and under the two limits of the future. */
interface RenewalsPerYear {
  today: number;
  at100Days: number;
  at47Days: number;
}

/** Uses of a certificate, with its key and its secret, by other resources. */
interface CertificateUse {
  /** Names of the consumers whose reference contains a version, so that they don't follow a renewal. */
  pinned: readonly string[];
  /** Whether a consumer reads the certificate with its private key. */
  readsPrivateKey: boolean;
}

/** Uses by lower-case `<vault>/<name>`. */
export type CertificateUses = ReadonlyMap<string, CertificateUse>;
const useKey = (vaultName: string, name: string): string => `${vaultName}/${name}`.toLowerCase();

/** The readiness of one certificate. */
export interface Readiness {
  asset: AssetRecord;
  owner: string | undefined;
  renewal: Renewal;
  publiclyTrusted: boolean | undefined;
  /** Validity of the issued certificate. Undefined without dates. */
  validityDays: number | undefined;
  /** Undefined if the validity is unknown, or if it is unknown whether the certificate is publicly trusted. */
  renewalsPerYear: RenewalsPerYear | undefined;
  problems: { code: ReadinessProblem; detail: string }[];
  state: "ready" | "failing" | "unknown";
}

/** A certificate's readiness, and the last answer of its authority. */
export interface FoundReadiness {
  readiness: Readiness;
  check: RenewalCheck | undefined;
}

/** Selects certificates of a vault or a subscription. */
export interface ReadinessFilter {
  vault?: string | undefined;
  subscription?: string | undefined;
}

/** Input of `readinessOf` besides the certificate. */
interface ReadinessContext {
  /** Milliseconds since 1970. */
  now: number;
  owner: string | undefined;
  /** Undefined if consumers are not known. */
  uses: CertificateUses | undefined;
}

/** Returns the readiness of an enabled certificate of a key vault. */
export function readinessOf(asset: AssetRecord, { now, owner, uses }: ReadinessContext): Readiness {
  const renewal = renewalOf(asset, now);
  const publiclyTrusted = isPubliclyTrusted(asset);
  const validity = validityOf(asset);
  const days = validity && validityDays(validity);
  const renewalsPerYear =
    days === undefined || days <= 0 || publiclyTrusted === undefined
      ? undefined
      : renewalsOf(days, publicLimitAt(now).days, publiclyTrusted);
  const use = uses && (uses.get(useKey(asset.vaultName, asset.name)) ?? { pinned: [], readsPrivateKey: false });
  const problems = problemsOf(asset, { renewal, publiclyTrusted, days, owner, use });
  return {
    asset,
    owner,
    renewal,
    publiclyTrusted,
    validityDays: days === undefined ? undefined : Math.ceil(days),
    renewalsPerYear,
    problems,
    // Without its details (`certificate`), some problems can't be detected.
    state: problems.length > 0 ? "failing" : renewalsPerYear && asset.certificate ? "ready" : "unknown",
  };
}

/** The limits apply to public certificates only. The others are renewed as often as their validity requires. */
function renewalsOf(days: number, limitToday: number, isPublic: boolean): RenewalsPerYear {
  const under = (limit: number) => Math.ceil(YEAR_DAYS / Math.min(days, isPublic ? limit : Number.POSITIVE_INFINITY));
  return { today: under(limitToday), at100Days: under(LIMIT_OF_2027), at47Days: under(LIMIT_OF_2029) };
}

interface ProblemFacts extends Pick<Readiness, "renewal" | "publiclyTrusted" | "owner"> {
  days: number | undefined;
  use: CertificateUse | undefined;
}

function problemsOf(asset: AssetRecord, facts: ProblemFacts): Readiness["problems"] {
  const { renewal, publiclyTrusted, days, owner, use } = facts;
  const { issuerName, renewalTrigger, certificate } = asset;
  const problems: Readiness["problems"] = [];
  const add = (code: ReadinessProblem, detail: string) => problems.push({ code, detail });
  // Key Vault calls the issuer of a certificate that it did not order itself `Unknown`.
  const isImported = issuerName !== undefined && /^unknown$/i.test(issuerName);
  if (renewal.renewedBy === "none" && isImported)
    add("importedByHand", "It was imported, and nothing is known to renew it.");
  else if (renewal.renewedBy === "none" && issuerName !== undefined)
    add("noRenewer", "Its policy only notifies contacts, and nothing else is known to renew it.");
  if (renewal.late) add("renewerStopped", "Its renewal is late.");
  if (use && use.pinned.length > 0)
    add("pinnedConsumer", `Consumers use a fixed version and don't follow a renewal: ${namesOf(use.pinned)}.`);
  if (use?.readsPrivateKey && certificate?.exportable === false)
    add("keyNotExportable", "A consumer reads its private key, which its policy does not allow to export.");
  if (owner === undefined) add("noOwner", "It has no owner who would notice a failed renewal.");
  const trigger = renewalTrigger?.daysBeforeExpiry;
  // Renewed 47 days before its expiry, a certificate that is valid for 47 days would be renewed again at once.
  if (publiclyTrusted && trigger !== undefined && trigger >= LIMIT_OF_2029)
    add(
      "triggerTooEarly",
      `Its policy renews it ${trigger} days before the expiry, but it may be valid for ${LIMIT_OF_2029} days at most.`,
    );
  const ordered = certificate?.orderedMonths;
  // A self-signed certificate has no authority that could issue another validity than ordered.
  if (!isImported && issuerName !== undefined && ordered !== undefined && days !== undefined && !isSelfSigned(asset)) {
    const orderedDays = ordered * MONTH_DAYS;
    if (Math.abs(days - orderedDays) > orderedDays * MAX_ORDER_DIFFERENCE)
      add(
        "orderNotMet",
        `Its policy orders ${ordered === 1 ? "one month" : `${ordered} months`}, but its authority issued a certificate for ${Math.ceil(days)} days.`,
      );
  }
  return problems;
}

const namesOf = (names: readonly string[]): string => {
  const rest = names.length - MAX_NAMED_CONSUMERS;
  return `${names.slice(0, MAX_NAMED_CONSUMERS).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
};

/** Numbers of the certificates with one renewer. */
interface RenewerSum {
  renewedBy: Renewer;
  certificates: number;
  renewalsPerYear: RenewalsPerYear;
}

/** Numbers of certificates and their renewals. */
interface ReadinessSum {
  certificates: number;
  ready: number;
  failing: number;
  unknown: number;
  renewalsPerYear: RenewalsPerYear;
  /** Certificates that the numbers of renewals leave out. */
  withoutRenewals: number;
  byRenewer: RenewerSum[];
  byProblem: { code: ReadinessProblem; certificates: number }[];
}

/** Sums, and whether consumers were known. */
export type ReadinessSummary = ReadinessSum & { consumersKnown: boolean };

/** Adds up the readiness of certificates. */
export class ReadinessCounter {
  readonly #states = { ready: 0, failing: 0, unknown: 0 };
  readonly #renewals = noRenewals();
  #withoutRenewals = 0;
  readonly #renewers = new Map<Renewer, RenewerSum>();
  readonly #problems = new Map<ReadinessProblem, number>();

  add({ state, renewal: { renewedBy }, renewalsPerYear, problems }: Readiness): void {
    this.#states[state]++;
    const ofRenewer = this.#renewers.get(renewedBy) ?? { renewedBy, certificates: 0, renewalsPerYear: noRenewals() };
    this.#renewers.set(renewedBy, ofRenewer);
    ofRenewer.certificates++;
    if (renewalsPerYear)
      for (const sum of [this.#renewals, ofRenewer.renewalsPerYear]) addRenewals(sum, renewalsPerYear);
    else this.#withoutRenewals++;
    for (const { code } of problems) this.#problems.set(code, (this.#problems.get(code) ?? 0) + 1);
  }

  /** Returns the sums. Renewers and problems are in the order of their definition; those without certificates are left out. */
  sum(): ReadinessSum {
    const { ready, failing, unknown } = this.#states;
    return {
      certificates: ready + failing + unknown,
      ...this.#states,
      renewalsPerYear: this.#renewals,
      withoutRenewals: this.#withoutRenewals,
      byRenewer: RENEWERS.flatMap((renewer) => this.#renewers.get(renewer) ?? []),
      byProblem: READINESS_PROBLEMS.flatMap((code) => {
        const certificates = this.#problems.get(code);
        return certificates === undefined ? [] : [{ code, certificates }];
      }),
    };
  }
}

const noRenewals = (): RenewalsPerYear => ({ today: 0, at100Days: 0, at47Days: 0 });

function addRenewals(sum: RenewalsPerYear, renewals: RenewalsPerYear): void {
  sum.today += renewals.today;
  sum.at100Days += renewals.at100Days;
  sum.at47Days += renewals.at47Days;
}
