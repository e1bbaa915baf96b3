import { failure } from "../platform/azure/failure.ts";
import { changeResource } from "./change-resource.ts";
import type { DevopsClient } from "./client.ts";
import { parameterOf } from "./response-schemas.ts";
import type { ConnectionLocation, ReplacedCredential } from "./secret-locations.ts";
import {
  AUTOMATIC_MEMBERS,
  belongsTo,
  type Connections,
  isAzureAddress,
  readConnection,
  signInOf,
  targetOf,
} from "./service-connections.ts";

/**
 * Converts service connections that sign in with a client secret to workload identity federation, and back.
 *
 * Azure DevOps converts a connection that it created itself (automatic): it adds the federated credential to the application, and
 * keeps the secret for seven days, so that the conversion can be reverted. A person completes the conversion of any other connection.
 * https://learn.microsoft.com/azure/devops/pipelines/release/configure-workload-identity
 */

/** How a connection of the application signs in. */
export interface ConnectionFederation {
  with: "secret" | "certificate" | "federation";
  /** True if Azure DevOps manages the application, so that a request can convert the connection. */
  automatic: boolean;
  /** Issuer and subject of the tokens that the connection presents. Undefined if the connection does not show them. */
  issuer: string | undefined;
  subject: string | undefined;
  /** Whether Azure DevOps can sign in with the connection now. */
  signsIn: boolean;
}

/**
 * Reads how a connection signs in, and makes Azure DevOps sign in with it.
 *
 * @throws {CloudFailure} notFound; refused if the connection does not belong to the application.
 */
export async function readFederation(
  client: DevopsClient,
  location: ConnectionLocation,
  application: ReplacedCredential,
): Promise<ConnectionFederation> {
  const target = targetOf("read a service connection", location);
  const connection = await readConnection(client, location, target);
  const signIn = signInOf(connection);
  if (signIn === undefined || !belongsTo(signIn, application))
    throw failure("refused", target, "it does not belong to this application", {
      remedy: "Find out who changed the service connection.",
    });
  return {
    with: signIn.with,
    automatic: signIn.automatic,
    issuer: parameterOf(connection, "workloadidentityfederationissuer")?.value,
    subject: parameterOf(connection, "workloadidentityfederationsubject")?.value,
    signsIn: await client.testConnection(location.projectId, connection),
  };
}

/** Schemes of authentication, as Azure DevOps writes them. */
const SCHEMES = { federation: "WorkloadIdentityFederation", secret: "ServicePrincipal" };

/**
 * Converts a connection that Azure DevOps created to another scheme. A connection that already has the scheme stays as it is, so a
 * repeat after a lost response is safe.
 *
 * @throws {CloudFailure} notFound; refused if the connection belongs to another application, was created by a person, leads to another
 * address, or if Azure DevOps rejects the conversion; conflict, see `changeResource`.
 */
export async function convertConnection(
  { client, resourceManagers }: Connections,
  location: ConnectionLocation,
  application: ReplacedCredential,
  to: keyof typeof SCHEMES,
): Promise<void> {
  const target = targetOf("convert a service connection", location);
  const rejection = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  const read = async () => {
    const connection = await readConnection(client, location, target);
    const signIn = signInOf(connection);
    if (signIn === undefined || !belongsTo(signIn, application))
      throw rejection("it does not belong to this application", "Find out who changed the service connection.");
    if (!signIn.automatic)
      throw rejection("a person created it", "Complete the conversion in the project settings of Azure DevOps.");
    if (!isAzureAddress(connection, resourceManagers))
      throw rejection("its address is not that of Azure Resource Manager", "Find out who created the connection.");
    return connection;
  };
  if (signInOf(await read())?.with === to) return;
  await changeResource(
    {
      target,
      read,
      ignored: AUTOMATIC_MEMBERS,
      write: (changed, notAfter) => client.convertConnection(changed, notAfter),
    },
    (changed) => {
      changed.authorization.scheme = SCHEMES[to];
      if (changed.data) delete changed.data.revertSchemeDeadline;
    },
  );
}
