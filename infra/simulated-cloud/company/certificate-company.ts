import type { Company, CompanyCertificate, CompanyVault } from "./company.ts";

/**
 * The company certificates: certificates with 6, 47, 90, 200 and 398 days, each renewed on time, late and never, by each kind of
 * renewer. The name of a certificate states all three, such as `acmebot-47-days-late`.
 */

const LIFETIMES = [6, 47, 90, 200, 398];

/** Age of the current version as a share of its lifetime. */
const AGES = { "on-time": 0.3, late: 0.95, never: 1.05 };
type Timing = keyof typeof AGES;

interface Renewer {
  name: string;
  /** Share of the lifetime after which it renews. */
  renewsAt: number;
  declaration: Partial<CompanyCertificate>;
  timings: readonly Timing[];
}

const EMAIL_ONLY = { action: "EmailContacts", daysBeforeExpiry: 30 } as const;
const ALL_TIMINGS = Object.keys(AGES) as Timing[];

const RENEWERS: Renewer[] = [
  // Key Vault renews certificates of an integrated authority.
  {
    name: "policy",
    renewsAt: 0.8,
    declaration: { issuer: "DigiCert", renewal: { action: "AutoRenew", percentage: 80 } },
    timings: ALL_TIMINGS,
  },
  {
    name: "acmebot",
    renewsAt: 2 / 3,
    declaration: { issuer: "Unknown", authority: "LetsEncrypt", renewal: EMAIL_ONLY, tags: { Issuer: "Acmebot" } },
    timings: ALL_TIMINGS,
  },
  {
    name: "cert-manager",
    renewsAt: 2 / 3,
    declaration: {
      issuer: "Unknown",
      renewal: EMAIL_ONLY,
      tags: { "cert-manager.io/certificate-name": "shop", "app.kubernetes.io/managed-by": "cert-manager" },
    },
    timings: ALL_TIMINGS,
  },
  // Only the times of the certificate's earlier versions show that it is renewed regularly.
  { name: "cadence", renewsAt: 0.7, declaration: { issuer: "Unknown", renewal: EMAIL_ONLY }, timings: ALL_TIMINGS },
  {
    name: "by-hand",
    renewsAt: 0,
    declaration: { issuer: "Unknown", renewal: EMAIL_ONLY },
    timings: ["on-time", "late"],
  },
];

function certificate({ name, renewsAt, declaration }: Renewer, days: number, timing: Timing): CompanyCertificate {
  const age = days * AGES[timing];
  const hasRenewals = renewsAt > 0 && timing !== "never";
  return {
    ...declaration,
    // Nobody is responsible for the certificates that are renewed by hand.
    tags: { ...(renewsAt > 0 && { owner: "certificates@acme.example" }), ...declaration.tags },
    name: `${name}-${days}-days-${timing}`,
    validityDays: days,
    validityMonths: Math.max(1, Math.round(days / 30.44)),
    createdDaysAgo: age,
    activeInDays: -age,
    ...(hasRenewals && { renewals: { count: 3, everyDays: days * renewsAt } }),
  };
}

const vaultOf = (renewer: Renewer): CompanyVault => ({
  name: `kv-${renewer.name}`,
  tags: { owner: "certificates@acme.example" },
  certificates: renewer.timings.flatMap((timing) => LIFETIMES.map((days) => certificate(renewer, days, timing))),
});

export const certificateCompany: Company = {
  subscriptions: [{ name: "Acme Certificates", vaults: RENEWERS.map(vaultOf) }],
};
