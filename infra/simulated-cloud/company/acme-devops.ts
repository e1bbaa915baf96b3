import type { CompanyDevops, CompanyProject } from "./devops.ts";

/**
 * Returns the Azure DevOps organization of the company acme, with a project for each team. Some objects use the vaults and
 * applications, and others use neither although they look similar.
 */
export function acmeDevops(teams: readonly string[]): CompanyDevops {
  return {
    organization: "acme",
    projects: [
      ...teams.map(projectOf),
      { name: "Finance Close", rights: "none", groups: [{ name: "close", vault: "kv-ledger-prod", variables: {} }] },
    ],
  };
}

/** Declares the project of a team. The position of the team adds variety: some positions, such as each third, are special. */
function projectOf(team: string, index: number): CompanyProject {
  // A name of up to three letters is an abbreviation.
  const name = team.length <= 3 ? team.toUpperCase() : `${team[0]!.toUpperCase()}${team.slice(1)}`;
  return {
    name,
    ...(index === 5 && { rights: "view" }),
    groups: [
      {
        name: `${team}-prod`,
        vault: `kv-${team}-prod`,
        variables: { [`${team}-api-client-secret`]: { enabled: index !== 8 } },
        ...(index === 0 && { sharedWith: ["Orders"] }),
      },
      // A copy in a secret variable, next to plain values. Its value is not readable, so its origin can't be detected.
      ...(index % 3 === 0
        ? [{ name: `${team}-release`, variables: { API_KEY: { secret: `${team}-copied-key` }, REGION: "westeurope" } }]
        : []),
    ],
    connections: [
      ...(index % 2 === 0
        ? [{ name: `${team}-deploy`, application: `${name} API`, secret: "current", camelCase: index % 4 === 2 }]
        : [{ name: `${team}-deploy`, application: `${name} Portal`, signsIn: "federation" as const }]),
      ...(index === 1
        ? [{ name: "orders-legacy", application: "Orders Importer", secret: "now", creationMode: "Automatic" as const }]
        : []),
      ...(index === 2
        ? [
            { name: "certificate-deploy", application: "Partner Gateway", signsIn: "certificate" as const },
            { name: "agents", application: "Identity API", signsIn: "managedIdentity" as const },
            { name: "source", application: "Identity API", type: "github" },
          ]
        : []),
    ],
  };
}
