import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { parameterOf, type ServiceConnection } from "./answers.ts";
import { type Changed, changeWhole } from "./change.ts";
import type { DevopsClient } from "./client.ts";
import type { ConnectionPlace, ReplacedCredential } from "./places.ts";
import type { ConnectionProofs } from "./proofs.ts";

/** How a connection signs in as an application. */
export interface ConnectionSignIn {
  /** Lower case. */
  appId: string;
  tenantId: string;
  /** With `federation` it needs no secret. */
  with: "secret" | "certificate" | "federation";
  /** DevOps made the application for it and takes no secret from others. */
  automatic: boolean;
}

/** Undefined for one that signs in as no application of Entra's. */
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

/** What tells how it is at this moment. */
const VOLATILE = new Set(["isReady", "isOutdated", "operationStatus"]);

interface Connections {
  client: DevopsClient;
  /** The only addresses that a connection may lead to. */
  resourceManagers: readonly string[];
}

/**
 * Gives a connection that was set up by hand the application's new client secret. Everybody who may make connections can
 * name any application in one, and may get at the secret that it holds: only one that signs in as the application, so that
 * whoever made it had a secret, gets the next. That it once did is kept, since it must get the one from before again when a
 * new one does not work.
 *
 * @throws {CloudFailure} notFound; refused when it did not sign in as the application, or takes no secret from us; conflict,
 * see `changeWhole`.
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
  return await changeWhole(
    { target, read, ignored: VOLATILE, write: (changed, notAfter) => client.putConnection(changed, notAfter) },
    (changed) => {
      const { name } = parameterOf(changed, "serviceprincipalkey") ?? { name: "serviceprincipalkey" };
      changed.authorization.parameters![name] = secret;
    },
  );
}

/**
 * Whether a connection signs in as the application; undefined when it holds no client secret of it.
 *
 * @throws {CloudFailure} notFound when there is no such connection, or none to be seen: whether it is used nobody knows.
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

/** Not to an Azure Stack, whose addresses, that of its sign-in among them, are what whoever made the connection says. */
function leadsToAzure({ url, data }: ServiceConnection, resourceManagers: readonly string[]): boolean {
  if (!url || !URL.canParse(url) || !resourceManagers.includes(new URL(url).origin)) return false;
  const members = Object.entries(data ?? {}).map(([name, value]) => [name.toLowerCase(), value] as const);
  return members.every(
    ([name, value]) =>
      !name.includes("authority") && (name !== "environment" || ENVIRONMENTS.includes(String(value).toLowerCase())),
  );
}
