import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { type Changed, changeResource } from "./change-resource.ts";
import type { DevopsClient } from "./client.ts";
import type { ConnectionProofs } from "./connection-proofs.ts";
import { parameterOf, type ServiceConnection } from "./response-schemas.ts";
import type { ConnectionPlace, ReplacedCredential } from "./secret-locations.ts";

/** How a connection signs in as an application. */
export interface ConnectionSignIn {
  /** Application id in lower case. */
  appId: string;
  tenantId: string;
  /** `federation` needs no secret. */
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
  const type = parameterOf(connection, "authenticationtype")?.value?.toLowerCase() ?? "spnkey";
  if (type !== "spnkey" && type !== "spncertificate") return undefined;
  return { appId, tenantId, with: type === "spnkey" ? "secret" : "certificate", automatic };
}

/** Members that describe the present state. */
const VOLATILE = new Set(["isReady", "isOutdated", "operationStatus"]);

interface Connections {
  client: DevopsClient;
  /** The only URLs that a connection may target. */
  resourceManagers: readonly string[];
}

/**
 * Writes the application's new client secret to a manually configured connection. Anyone who can create connections can name
 * any application in one and may be able to read its secret. So only a connection that currently signs in as the application
 * gets the new secret, because its creator already had a secret. The proof is stored, since the connection must get the
 * previous secret again if the new one does not work.
 *
 * @throws {CloudFailure} notFound; refused if the connection did not sign in as the application, or accepts no secret;
 * conflict, see `changeResource`.
 */
export async function replaceConnectionSecret(
  connections: Connections & { proofs: ConnectionProofs },
  place: ConnectionPlace,
  of: ReplacedCredential,
  secret: string,
): Promise<Changed> {
  const { client, proofs } = connections;
  const target = targetOf("change the secret of a service connection", place);
  const read = async () => {
    const connection = await found(client, place, target);
    requireWritable(connection, of, connections, target);
    return connection;
  };
  const connection = await read();
  if (!(await proofs.holds(place, of))) {
    if (!(await client.testConnection(place.projectId, connection))) {
      throw failure("refused", target, "it does not sign in as the application now", {
        remedy: "Give it a client secret of the application in Azure DevOps, or delete it.",
      });
    }
    await proofs.keep(place, of);
  }
  return await changeResource(
    { target, read, ignored: VOLATILE, write: (changed, notAfter) => client.putConnection(changed, notAfter) },
    (changed) => {
      const { name } = parameterOf(changed, "serviceprincipalkey") ?? { name: "serviceprincipalkey" };
      changed.authorization.parameters![name] = secret;
    },
  );
}

/**
 * Returns true if a connection signs in as the application. Undefined if it contains no client secret of it.
 *
 * @throws {CloudFailure} notFound if there is no such connection or it is not visible. Then it is unknown whether the secret is
 * used.
 */
export async function signsIn(
  client: DevopsClient,
  place: ConnectionPlace,
  of: ReplacedCredential,
): Promise<boolean | undefined> {
  const connection = await found(client, place, targetOf("read a service connection", place));
  const signIn = signInOf(connection);
  if (signIn?.with !== "secret" || !isOf(signIn, of)) return undefined;
  return await client.testConnection(place.projectId, connection);
}

const targetOf = (operation: string, { projectId, connectionId }: ConnectionPlace): CallTarget => ({
  operation,
  resource: `service connection ${connectionId} of project ${projectId}`,
});

const isOf = (signIn: ConnectionSignIn | undefined, of: ReplacedCredential): boolean =>
  signIn?.appId === of.appId && signIn.tenantId === of.tenantId;

async function found(client: DevopsClient, place: ConnectionPlace, target: CallTarget): Promise<ServiceConnection> {
  const connection = await client.connection(place.projectId, place.connectionId);
  if (connection) return connection;
  throw failure("notFound", target, "there is no such connection, or the identity may not see it", {
    remedy: "Check whether it was deleted, and the identity's role on the service connection.",
  });
}

function requireWritable(
  connection: ServiceConnection,
  of: ReplacedCredential,
  { resourceManagers }: Connections,
  target: CallTarget,
): void {
  const refused = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  const signIn = signInOf(connection);
  if (!signIn || !isOf(signIn, of)) {
    throw refused("it does not belong to this application", "See who changed the service connection.");
  }
  if (signIn.with !== "secret") throw refused("it holds no client secret", "Nothing to do: it needs none.");
  if (signIn.automatic) {
    throw refused(
      "Azure DevOps made it, and takes no secret for it from others",
      "Choose Rotate secret in the connection's menu, or better convert it to workload identity federation.",
    );
  }
  if (!leadsToAzure(connection, resourceManagers)) {
    throw refused("it leads to another address than the resource manager's", "See who made the service connection.");
  }
  if (!connection.serviceEndpointProjectReferences?.length) {
    throw refused("DevOps does not say which projects it belongs to", "Change it in Azure DevOps.");
  }
}

/** https://learn.microsoft.com/azure/devops/pipelines/library/azure-resource-manager-alternate-approaches */
const ENVIRONMENTS = ["azurecloud", "azurechinacloud", "azureusgovernment"];

/** Not Azure Stack: its URLs, including the sign-in URL, are chosen by the creator of the connection. */
function leadsToAzure({ url, data }: ServiceConnection, resourceManagers: readonly string[]): boolean {
  if (!url || !URL.canParse(url) || !resourceManagers.includes(new URL(url).origin)) return false;
  const members = Object.entries(data ?? {}).map(([name, value]) => [name.toLowerCase(), value] as const);
  return members.every(
    ([name, value]) =>
      !name.includes("authority") && (name !== "environment" || ENVIRONMENTS.includes(String(value).toLowerCase())),
  );
}
