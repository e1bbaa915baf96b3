import { type CloudFailure, failure, unlessMissing } from "../../azure/failure.ts";
import type { Devops, DevopsOrganization } from "../../devops/devops.ts";
import { type ConnectionPlace, replaceConnectionSecret, signInOf } from "../../devops/service-connections.ts";
import type { PlannedConsumer } from "../../rotation/consumer.ts";
import { devopsPlace } from "../devops/ids.ts";
import type { KindOfConsumer } from "./kind.ts";

interface DevopsDeps {
  devops: Pick<Devops, "organization">;
  tenantId(): Promise<string>;
  /** The addresses of the resource manager that connections may lead to. */
  resourceManagers: readonly string[];
}

/** Undefined where it is of another organization than the one that is configured now. */
async function placeOf({ devops }: DevopsDeps, { id }: PlannedConsumer) {
  const place = devopsPlace(id);
  const organization = await devops.organization();
  return place && organization?.name === place.organization ? { ...place, organization } : undefined;
}

/** Variable groups that are linked to a key vault: each run of a pipeline reads the current version. */
export function variableGroupConsumers(deps: DevopsDeps): KindOfConsumer {
  return {
    sees: () => true,

    async look(consumer) {
      const place = await placeOf(deps, consumer);
      if (place?.groupId === undefined)
        return { holds: "unknown", problem: "Its organization is not configured any more." };
      const group = await unlessMissing(place.organization.client.variableGroup(place.projectId, place.groupId));
      const linked =
        group?.type === "AzureKeyVault" &&
        group.providerData?.vault?.toLowerCase() === consumer.vaultName.toLowerCase() &&
        Object.keys(group.variables ?? {}).some((name) => name.toLowerCase() === consumer.secretName.toLowerCase());
      return { holds: linked ? "new" : "gone" };
    },
  };
}

/** Service connections that sign in with a copy of an application's client secret. */
export function serviceConnectionConsumers(deps: DevopsDeps): KindOfConsumer {
  async function connectionOf(
    consumer: PlannedConsumer,
  ): Promise<{ organization: DevopsOrganization; place: ConnectionPlace } | undefined> {
    const found = await placeOf(deps, consumer);
    if (found?.connectionId === undefined) return undefined;
    const { organization, projectId, connectionId } = found;
    return { organization, place: { projectId, connectionId } };
  }

  return {
    sees: () => true,

    async act(consumer, { value }) {
      const found = await connectionOf(consumer);
      if (found === undefined) throw notConfigured(consumer);
      const of = {
        appId: consumer.secretName,
        tenantId: await deps.tenantId(),
        resourceManagers: deps.resourceManagers,
      };
      const { meanwhile } = await replaceConnectionSecret(found.organization.client, found.place, of, await value());
      return { changedMeanwhile: meanwhile };
    },

    async look(consumer) {
      const found = await connectionOf(consumer);
      if (found === undefined) return { holds: "unknown", problem: "Its organization is not configured any more." };
      const { client } = found.organization;
      const { projectId, connectionId } = found.place;
      const connection = await unlessMissing(client.connection(projectId, connectionId));
      const signIn = connection && signInOf(connection);
      if (!connection || signIn?.appId !== consumer.secretName.toLowerCase() || signIn.with !== "secret") {
        return { holds: "gone" };
      }
      if (await client.testConnection(projectId, connection)) return { holds: "new" };
      return { holds: "old", problem: "Azure DevOps can't sign in with the connection." };
    },
  };
}

const notConfigured = ({ name }: PlannedConsumer): CloudFailure =>
  failure(
    "notFound",
    { operation: "change the secret of a service connection", resource: `service connection ${name}` },
    "its organization is not configured any more",
    { remedy: "Configure it with PUT /api/settings/integrations/devops, or change the connection's secret there." },
  );
