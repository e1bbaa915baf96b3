import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { type Changed, changeResource } from "./change-resource.ts";
import type { DevopsClient } from "./client.ts";
import type { ConnectionProofs } from "./connection-proofs.ts";
import { parameterOf, type ServiceConnection } from "./response-schemas.ts";
import type { ConnectionLocation, ReplacedCredential } from "./secret-locations.ts";

/** How a service connection signs in as an Entra application. */
export interface ConnectionSignIn {
  /** Client ID of the application and ID of its tenant, in lower case. */
  appId: string;
  tenantId: string;
  /** Kind of the credential. `federation` needs no secret. */
  with: "secret" | "certificate" | "federation";
  /** True if DevOps manages the application and accepts no secret from others. */
  automatic: boolean;
}

/** Returns the sign-in of a connection. Undefined if it does not sign in as an Entra application. */
export function signInOf(connection: ServiceConnection): ConnectionSignIn | undefined {
  if (connection.type.toLowerCase() !== "azurerm") return undefined;
  const appId = parameterOf(connection, "serviceprincipalid")?.value?.toLowerCase();
  const tenantId = parameterOf(connection, "tenantid")?.value?.toLowerCase();
  if (appId === undefined || tenantId === undefined) return undefined;
  const scheme = connection.authorization.scheme.toLowerCase();
  const automatic = String(connection.data?.creationMode).toLowerCase() === "automatic";
  if (scheme === "workloadidentityfederation") return { appId, tenantId, with: "federation", automatic };
  if (scheme !== "serviceprincipal") return undefined;
  // A connection without this parameter has a client secret ("spnkey").
  const type = parameterOf(connection, "authenticationtype")?.value?.toLowerCase() ?? "spnkey";
  if (type !== "spnkey" && type !== "spncertificate") return undefined;
  return { appId, tenantId, with: type === "spnkey" ? "secret" : "certificate", automatic };
}

/** Members that DevOps updates automatically. */
export const AUTOMATIC_MEMBERS = new Set(["isReady", "isOutdated", "operationStatus"]);

/** Needed for checks and changes of connections. */
export interface Connections {
  client: DevopsClient;
  /** The only URLs that a connection may target. */
  resourceManagers: readonly string[];
}

/**
 * Writes the application's new client secret to a manually configured connection. Rotations call it. Anyone who can create
 * connections can name any application in one and may be able to read the secret that it gets. So only a connection that
 * currently signs in as the application gets the new secret, because its creator already had a secret. A proof of the sign-in
 * is stored: if the new secret does not work, the connection can no longer sign in, but must get the previous secret again.
 *
 * @throws {CloudFailure} notFound; refused if the connection did not sign in as the application, or accepts no secret;
 * conflict, see `changeResource`.
 */
export async function replaceConnectionSecret(
  connections: Connections & { proofs: ConnectionProofs },
  location: ConnectionLocation,
  application: ReplacedCredential,
  secret: string,
): Promise<Changed> {
  const { client, proofs } = connections;
  const target = targetOf("change the secret of a service connection", location);
  const read = async () => {
    const connection = await readConnection(client, location, target);
    requireWritable(connection, application, connections, target);
    return connection;
  };
  const connection = await read();
  if (!(await proofs.isProven(location, application))) {
    if (!(await client.testConnection(location.projectId, connection))) {
      throw failure("refused", target, "it does not currently sign in as the application", {
        remedy: "Set a client secret of the application in the connection in Azure DevOps, or delete the connection.",
      });
    }
    await proofs.store(location, application);
  }
  return await changeResource(
    { target, read, ignored: AUTOMATIC_MEMBERS, write: (changed, notAfter) => client.putConnection(changed, notAfter) },
    (changed) => {
      const { name } = parameterOf(changed, "serviceprincipalkey") ?? { name: "serviceprincipalkey" };
      changed.authorization.parameters![name] = secret;
    },
  );
}

/**
 * Returns true if a connection signs in as the application. Undefined if the connection contains no client secret of the
 * application.
 *
 * @throws {CloudFailure} notFound if there is no such connection or it is not visible. Then it is unknown whether the secret is
 * used.
 */
export async function signsIn(
  client: DevopsClient,
  location: ConnectionLocation,
  application: ReplacedCredential,
): Promise<boolean | undefined> {
  const connection = await readConnection(client, location, targetOf("read a service connection", location));
  const signIn = signInOf(connection);
  if (signIn?.with !== "secret" || !belongsTo(signIn, application)) return undefined;
  return await client.testConnection(location.projectId, connection);
}

/** Text for users about a connection that does not sign in. */
export const NO_SIGN_IN = "Azure DevOps can't sign in with the connection.";

/**
 * Returns why a connection does not sign in as the application now, as a text for users. A connection that can't be seen, or
 * whose address its creator chose, counts as one that does not sign in. Undefined in three cases:
 * - The connection signs in.
 * - It contains no client secret of the application.
 * - A stored proof shows that it signed in before. Its creator then already had a secret of the application.
 *
 * @throws {CloudFailure} if Azure DevOps gives no clear answer.
 */
export async function signInProblem(
  connections: Connections & { proofs: ConnectionProofs },
  location: ConnectionLocation,
  application: ReplacedCredential,
): Promise<string | undefined> {
  const { client, proofs, resourceManagers } = connections;
  const connection = await client.connection(location.projectId, location.connectionId);
  const unlessProven = async (text: string) => ((await proofs.isProven(location, application)) ? undefined : text);
  if (!connection) return await unlessProven("It no longer exists, or the service's identity has no access to it.");
  const signIn = signInOf(connection);
  if (signIn?.with !== "secret" || !belongsTo(signIn, application)) return undefined;
  // DevOps would send the test to the address, which may never answer.
  if (!isAzureAddress(connection, resourceManagers))
    return await unlessProven("Its address is not that of Azure Resource Manager.");
  return (await client.testConnection(location.projectId, connection)) ? undefined : await unlessProven(NO_SIGN_IN);
}

export const targetOf = (operation: string, { projectId, connectionId }: ConnectionLocation): CallTarget => ({
  operation,
  resource: `service connection ${connectionId} of project ${projectId}`,
});

export const belongsTo = (signIn: ConnectionSignIn | undefined, application: ReplacedCredential): boolean =>
  signIn?.appId === application.appId && signIn.tenantId === application.tenantId;

export async function readConnection(
  client: DevopsClient,
  location: ConnectionLocation,
  target: CallTarget,
): Promise<ServiceConnection> {
  const connection = await client.connection(location.projectId, location.connectionId);
  if (connection) return connection;
  throw failure("notFound", target, "there is no such connection, or the identity may not see it", {
    remedy: "Check whether it was deleted, and the identity's role on the service connection.",
  });
}

/**
 * Throws unless the connection belongs to the application, accepts a secret, and leads to Azure.
 *
 * @throws {CloudFailure} refused
 */
function requireWritable(
  connection: ServiceConnection,
  application: ReplacedCredential,
  { resourceManagers }: Connections,
  target: CallTarget,
): void {
  const rejection = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  const signIn = signInOf(connection);
  if (!signIn || !belongsTo(signIn, application)) {
    throw rejection("it does not belong to this application", "Find out who changed the service connection.");
  }
  if (signIn.with !== "secret") throw rejection("it has no client secret", "No action needed: it needs none.");
  if (signIn.automatic) {
    throw rejection(
      "Azure DevOps created it and accepts no secret for it from others",
      "Choose Rotate secret in the connection's menu, or better convert it to workload identity federation.",
    );
  }
  if (!isAzureAddress(connection, resourceManagers)) {
    throw rejection(
      "its address is not that of Azure Resource Manager",
      "Find out who created the service connection.",
    );
  }
  // DevOps rejects a change that does not name the connection's projects.
  if (!connection.serviceEndpointProjectReferences?.length) {
    throw rejection("DevOps does not return its projects", "Change it in Azure DevOps.");
  }
}

/** Azure clouds: https://learn.microsoft.com/azure/devops/pipelines/library/azure-resource-manager-alternate-approaches */
const ENVIRONMENTS = ["azurecloud", "azurechinacloud", "azureusgovernment"];

/**
 * Returns whether the connection sends secrets only to Azure. False for Azure Stack, whose URLs, including the sign-in URL, the
 * creator of the connection chooses.
 */
export function isAzureAddress({ url, data }: ServiceConnection, resourceManagers: readonly string[]): boolean {
  if (!url || !URL.canParse(url) || !resourceManagers.includes(new URL(url).origin)) return false;
  const members = Object.entries(data ?? {}).map(([name, value]) => [name.toLowerCase(), value] as const);
  return members.every(
    ([name, value]) =>
      !name.includes("authority") && (name !== "environment" || ENVIRONMENTS.includes(String(value).toLowerCase())),
  );
}
