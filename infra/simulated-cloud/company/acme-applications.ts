// Applications of the sample company acme.

import { appIdOf, type CompanyApplication, keyIdOf, objectIdOf, secretValueOf } from "./applications.ts";
import type { CompanySecret, CompanySubscription } from "./company.ts";

/** Days until a credential of a team's application expires, by the team's position: API, portal and importer. */
const API_DAYS = [20, -5, 3, 6, 12, 25, 40, 80, 150, 300, 500, 700];
const PORTAL_DAYS = [20, 90, 4, -12, 150, 200, 260, 300, 330, 100, 60, 395];
const IMPORTER_DAYS = [45, 9, 400, -30, 28, 5, 190, 60, 2, 350, 14, 100];

/** Name of a team in names of applications. */
const title = (team: string) => (team.length <= 3 ? team.toUpperCase() : `${team[0]!.toUpperCase()}${team.slice(1)}`);

/** Returns the applications of the company acme: three for each team, in every state of health, and some without a team. */
export function acmeApplications(teams: readonly string[]): CompanyApplication[] {
  return [...teams.flatMap((team, index) => applicationsOf(team, index)), ...APPS_WITHOUT_TEAM];
}

/** Declares a team's applications. The position of the team adds variety, such as a missing owner at some positions. */
function applicationsOf(team: string, index: number): CompanyApplication[] {
  const [name, mail] = [title(team), `${team}@acme.example`];
  const allowsPersonalAccounts = index % 4 === 1;
  return [
    {
      name: `${name} API`,
      owners: [mail],
      ...(index === 11 && { serviceOwns: false }),
      secrets: [{ name: "current", expiresInDays: API_DAYS[index]!, createdDaysAgo: 45 }],
    },
    {
      name: `${name} Importer`,
      ...(index % 3 !== 0 && { owners: [mail, "platform@acme.example"] }),
      secrets: [
        { name: "before", expiresInDays: IMPORTER_DAYS[index]! - 90, createdDaysAgo: 300 },
        { name: "now", expiresInDays: IMPORTER_DAYS[index]!, createdDaysAgo: 110 },
      ],
    },
    {
      name: `${name} Portal`,
      ...(index !== 6 && { owners: [mail] }),
      ...(allowsPersonalAccounts && {
        audience: "AzureADandPersonalMicrosoftAccount",
        secrets: [
          { name: "blue", expiresInDays: 33 + index, createdDaysAgo: 140 },
          { name: "green", expiresInDays: 90 + index, createdDaysAgo: 80 },
        ],
      }),
      ...(!allowsPersonalAccounts && {
        certificates: [{ name: `portal-${team}`, expiresInDays: PORTAL_DAYS[index]! }],
      }),
      ...(index % 2 === 0 && {
        federated: [
          {
            name: "deploy",
            issuer: "https://token.actions.githubusercontent.com",
            subject: `repo:acme/${team}-portal:environment:prod`,
          },
        ],
      }),
    },
  ];
}

/** Applications without a team. */
const APPS_WITHOUT_TEAM: CompanyApplication[] = [
  { name: "Legacy Sync", secrets: [{ name: "initial", expiresInDays: -400, createdDaysAgo: 1130 }] },
  {
    name: "Partner Gateway",
    owners: ["platform@acme.example"],
    secrets: [{ name: "for the partner", expiresInDays: 1500, createdDaysAgo: 325 }],
    certificates: [{ name: "partner-gateway", expiresInDays: 240 }],
  },
  {
    name: "Nightly Reporter",
    owners: ["analytics@acme.example"],
    signIn: "disabled",
    secrets: [{ name: "reports", expiresInDays: 18 }],
    federated: [
      {
        name: "cluster",
        issuer: "https://oidc.acme.example/cluster-7",
        subject: "system:serviceaccount:reports:nightly",
      },
    ],
  },
  { name: "Travel Expenses", owners: ["hr@acme.example"], samlSigning: { expiresInDays: 26 } },
];

/**
 * Adds vault secrets with the values of the applications' client secrets to the teams' vaults. The metadata of most names the
 * application in a usual way. Some further secrets are misleading.
 */
export function addApplicationSecrets(
  subscriptions: readonly CompanySubscription[],
  teams: readonly string[],
): CompanySubscription[] {
  const inVault = new Map(teams.map((team, index) => [`kv-${team}-prod`, secretsOf(team, index)]));
  return subscriptions.map((subscription) => ({
    ...subscription,
    vaults: (subscription.vaults ?? []).map((vault) => ({
      ...vault,
      secrets: [...(vault.secrets ?? []), ...(inVault.get(vault.name) ?? [])],
    })),
  }));
}

/** Returns the secrets that a team's vault has in addition. */
function secretsOf(team: string, index: number): CompanySecret[] {
  const [api, importer] = [`${title(team)} API`, `${title(team)} Importer`];
  const expiresInDays = IMPORTER_DAYS[index]!;
  const importers: CompanySecret[] = [
    { name: `${team}-importer`, expiresInDays, createdDaysAgo: 110, value: secretValueOf(importer, "now") },
    // Another secret that expires on the same day.
    ...(index % 4 === 2 ? [{ name: "ftp-batch-password", expiresInDays, createdDaysAgo: 20 }] : []),
  ];
  // The name is that of another team's secret, but the value is different.
  const foreign: CompanySecret[] =
    team === "orders" ? [{ name: "payments-api-client-secret", createdDaysAgo: 500 }] : [];
  return [apiSecret(team, api, index), ...(index % 3 === 1 ? [] : importers), ...foreign];
}

/** Returns a vault secret with the value of an API's client secret. Its metadata names the application in one of four ways. */
function apiSecret(team: string, application: string, index: number): CompanySecret {
  const secret = {
    name: `${team}-api-client-secret`,
    createdDaysAgo: 45,
    value: secretValueOf(application, "current"),
  };
  const [appId, keyId] = [appIdOf(application), keyIdOf(application, "current")];
  const expires = { expiresInDays: API_DAYS[index]! };
  switch (index % 4) {
    case 0:
      return {
        ...secret,
        ...expires,
        tags: { CredentialId: keyId, ProviderAddress: objectIdOf(application), ValidityPeriodDays: "180" },
      };
    case 1:
      return { ...secret, ...expires, contentType: `${team}-api:${appId}:${keyId}` };
    case 2:
      return { ...secret, ...expires, tags: { "client-id": appId } };
    default:
      return secret;
  }
}
