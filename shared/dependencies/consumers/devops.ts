import type { Devops, DevopsOrganization } from "../../devops/devops.ts";
import type { VariableLocation } from "../../devops/secret-locations.ts";
import { NO_SIGN_IN } from "../../devops/service-connections.ts";
import { type CallTarget, type CloudFailure, failure } from "../../platform/azure/failure.ts";
import type { ConsumerCheck, PlannedConsumer } from "../../rotation/consumer.ts";
import { devopsPlace } from "../devops/ids.ts";
import { type KindOfConsumer, throwUnclear } from "./consumer-kind.ts";

// Gives new values to consumers in Azure DevOps (variable groups and service connections) during a rotation. Also checks which
// version of the secret a consumer has (`holds`): `new`, `old`, `unknown`, or `gone` if it no longer uses the secret.

interface DevopsDeps {
  devops: Pick<Devops, "organization">;
}

const NOT_CONFIGURED: ConsumerCheck = { holds: "unknown", problem: "Its organization is no longer configured." };

/**
 * Result for a consumer that can't be read. Azure DevOps gives the same answer for deleted objects and for missing permissions,
 * so whether it has the new version is unknown.
 */
const NOT_SEEN: ConsumerCheck = {
  holds: "unknown",
  problem: "It no longer exists, or the service's identity has no access to it.",
};

/**
 * Returns the project and object of a consumer, with its organization. Undefined if that organization is not configured now.
 */
async function placeOf({ devops }: DevopsDeps, { id }: PlannedConsumer) {
  const place = devopsPlace(id);
  const organization = await devops.organization();
  return place && organization?.name === place.organization ? { ...place, organization } : undefined;
}

/**
 * Refreshes variable groups. If a group is linked to a key vault, each pipeline run reads the current version. Other groups
 * store copies, in variables that an administrator listed.
 */
export function variableGroupConsumers(deps: DevopsDeps): KindOfConsumer {
  async function groupOf(consumer: PlannedConsumer) {
    const location = await placeOf(deps, consumer);
    if (location?.groupId === undefined) return undefined;
    const { organization, projectId, groupId } = location;
    return { organization, place: { projectId, groupId } };
  }

  return {
    canCheck: () => true,

    async refresh(consumer, { value }) {
      const location = await groupOf(consumer);
      if (location === undefined) throw notConfigured(consumer);
      // Uses the variables that are listed as copies now, because the list may have changed since the plan.
      const copies = copiesOf(location.organization, location.place, consumer);
      if (copies.length === 0) throw notDeclared(consumer);
      const secret = await value();
      const changedMeanwhile: string[] = [];
      for (const [index, place] of copies.entries()) {
        const replaced = location.organization.replaceVariable(place, secret);
        // `throwUnclear` marks a failure after the first variable as unclear, because the group has already changed.
        const { changedByOthers } = await (index > 0 ? replaced.catch(throwUnclear) : replaced);
        changedMeanwhile.push(...changedByOthers);
      }
      return { changedMeanwhile };
    },

    async check(consumer) {
      const location = await groupOf(consumer);
      if (location === undefined) return NOT_CONFIGURED;
      const { organization, place } = location;
      const group = await organization.client.variableGroup(place.projectId, place.groupId);
      if (group === undefined) return NOT_SEEN;
      if (group.type === "AzureKeyVault") {
        const linked =
          isSameName(group.providerData?.vault ?? "", consumer.vaultName) &&
          Object.keys(group.variables ?? {}).some((name) => isSameName(name, consumer.secretName));
        return { holds: linked ? "new" : "gone" };
      }
      // A stored copy can't be read. The only evidence of the new value is that DevOps has accepted it.
      const copies = copiesOf(organization, place, consumer);
      const exists = await Promise.all(copies.map((one) => organization.hasSecretVariable(one)));
      return { holds: exists.includes(true) ? "new" : "gone" };
    },
  };
}

/** Refreshes service connections that sign in with a copy of an application's client secret. */
export function serviceConnectionConsumers(deps: DevopsDeps): KindOfConsumer {
  async function connectionOf(consumer: PlannedConsumer) {
    const location = await placeOf(deps, consumer);
    if (location?.connectionId === undefined) return undefined;
    const { organization, projectId, connectionId } = location;
    return { organization, place: { projectId, connectionId } };
  }

  return {
    canCheck: () => true,

    async currentProblem(consumer) {
      const location = await connectionOf(consumer);
      const text = await location?.organization.signInProblem(location.place, credentialOf(consumer));
      return text === undefined ? undefined : { text, canPass: false };
    },

    async isNewPlace(consumer) {
      const location = await connectionOf(consumer);
      return !(await location?.organization.wasWritten(location.place, credentialOf(consumer)));
    },

    async refresh(consumer, { value }) {
      const location = await connectionOf(consumer);
      if (location === undefined) throw notConfigured(consumer);
      const { organization, place } = location;
      const { changedByOthers } = await organization.replaceConnectionSecret(
        place,
        credentialOf(consumer),
        await value(),
      );
      return { changedMeanwhile: changedByOthers };
    },

    async check(consumer) {
      const location = await connectionOf(consumer);
      if (location === undefined) return NOT_CONFIGURED;
      const works = await location.organization.signsIn(location.place, credentialOf(consumer));
      // Undefined: the connection no longer contains a client secret of the application.
      if (works === undefined) return { holds: "gone" };
      if (works) return { holds: "new" };
      return { holds: "old", problem: NO_SIGN_IN };
    },
  };
}

const isSameName = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/** Returns the variables of a group that are listed as copies of the secret. */
const copiesOf = (
  { copies }: DevopsOrganization,
  { projectId, groupId }: Pick<VariableLocation, "projectId" | "groupId">,
  { vaultName, secretName }: PlannedConsumer,
): VariableLocation[] =>
  copies.filter(
    (copy) =>
      copy.projectId === projectId &&
      copy.groupId === groupId &&
      isSameName(copy.vaultName, vaultName) &&
      isSameName(copy.secretName, secretName),
  );

/** Returns the application of a consumer. Its `vaultName` is `entra.<tenant id>` and its `secretName` the client ID. */
const credentialOf = ({ vaultName, secretName }: PlannedConsumer) => ({
  appId: secretName.toLowerCase(),
  tenantId: vaultName.slice(vaultName.indexOf(".") + 1).toLowerCase(),
});

const targetOf = ({ name }: PlannedConsumer): CallTarget => ({ operation: "give a new value", resource: name });

const notConfigured = (consumer: PlannedConsumer): CloudFailure =>
  failure("refused", targetOf(consumer), "its organization is no longer configured", {
    remedy: "Configure it with PUT /api/settings/integrations/devops, or change the value in Azure DevOps.",
  });

const notDeclared = (consumer: PlannedConsumer): CloudFailure =>
  failure("refused", targetOf(consumer), "no variable of the group is listed as a copy of this secret anymore", {
    remedy: "PUT copies to /api/settings/integrations/devops/copies, or leave the group out.",
  });
