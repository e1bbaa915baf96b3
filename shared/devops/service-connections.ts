import { type CallTarget, failure } from "../azure/failure.ts";
import { parameterOf, type ServiceConnection } from "./answers.ts";
import { type Changed, changeWhole } from "./change.ts";
import type { DevopsClient } from "./client.ts";

export interface ConnectionPlace {
  projectId: string;
  connectionId: string;
}

/** How a connection signs in as an application. */
export interface ConnectionSignIn {
  /** Lower case. */
  appId: string;
  tenantId: string;
  /** `federation` and `managedIdentity` need no secret. */
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

/**
 * Gives a connection that was set up by hand the application's new client secret. Everybody who may make connections can
 * name any application in one, and may get at the secret that it holds: only one that signs in as the application now, so
 * that whoever made it had a secret, gets the next.
 *
 * @param of - The application, and the addresses of the resource manager that may be asked with its token.
 * @throws {CloudFailure} notFound; refused when it does not sign in as the application now, or takes no secret from us;
 * conflict, see `changeWhole`.
 */
export async function replaceConnectionSecret(
  client: DevopsClient,
  place: ConnectionPlace,
  of: { appId: string; tenantId: string; resourceManagers: readonly string[] },
  secret: string,
): Promise<Changed> {
  const target: CallTarget = {
    operation: "change the secret of a service connection",
    resource: `service connection ${place.connectionId} of project ${place.projectId}`,
  };
  const refused = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  const read = async () => {
    const connection = await client.connection(place.projectId, place.connectionId);
    if (!connection) {
      throw failure("notFound", target, "there is no such connection, or the identity may not see it", {
        remedy: "Check whether it was deleted, and the identity's role on the service connection.",
      });
    }
    const signIn = signInOf(connection);
    if (signIn?.appId !== of.appId.toLowerCase() || signIn.tenantId !== of.tenantId.toLowerCase()) {
      throw refused("it does not belong to this application", "See who changed the service connection.");
    }
    if (signIn.with !== "secret") throw refused("it holds no client secret", "Nothing to do: it needs none.");
    if (signIn.automatic) {
      throw refused(
        "Azure DevOps made it, and takes no secret for it from others",
        "Choose Rotate secret in the connection's menu, or better convert it to workload identity federation.",
      );
    }
    if (!isResourceManager(connection, of.resourceManagers)) {
      throw refused("it leads to another address than the resource manager's", "See who made the service connection.");
    }
    if (!connection.serviceEndpointProjectReferences?.length) {
      throw refused("DevOps does not say which projects it belongs to", "Change it in Azure DevOps.");
    }
    return connection;
  };
  if (!(await client.testConnection(place.projectId, await read()))) {
    throw refused(
      "it does not sign in as the application now",
      "Give it a client secret of the application in Azure DevOps, or delete it.",
    );
  }
  return await changeWhole(
    { target, read, ignored: VOLATILE, write: (connection, notAfter) => client.putConnection(connection, notAfter) },
    (connection) => {
      const { name } = parameterOf(connection, "serviceprincipalkey") ?? { name: "serviceprincipalkey" };
      connection.authorization.parameters![name] = secret;
    },
  );
}

const isResourceManager = ({ url }: ServiceConnection, allowed: readonly string[]): boolean =>
  typeof url === "string" && URL.canParse(url) && allowed.includes(new URL(url).origin);
