import type { Devops, DevopsOrganization } from "../../devops/devops.ts";
import type { VariableLocation } from "../../devops/secret-locations.ts";
import { NO_SIGN_IN } from "../../devops/service-connections.ts";
import { type CallTarget, type CloudFailure, failure } from "../../platform/azure/failure.ts";
import type { ConsumerCheck, PlannedConsumer } from "../../rotation/consumer.ts";
import { parseDevopsId } from "../devops/ids.ts";
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
 * Returns the project and the group or connection of a consumer, with its organization. Undefined if that organization is not
 * configured now.
 */
async function locate({ devops }: DevopsDeps, { id }: PlannedConsumer) {
  const ids = parseDevopsId(id);
  const organization = await devops.organization();
  return ids && organization?.name === ids.organization ? { ...ids, organization } : undefined;
}

/**
 * Refreshes variable groups. If a group is linked to a key vault, each pipeline run reads the current version. Other groups
 * store copies, in variables that an administrator listed.
 */
export function variableGroupConsumers(deps: DevopsDeps): KindOfConsumer {
  async function groupOf(consumer: PlannedConsumer) {
    const located = await locate(deps, consumer);
    if (located?.groupId === undefined) return undefined;
    const { organization, projectId, groupId } = located;
    return { organization, location: { projectId, groupId } };
  }

  return {
    canCheck: () => true,

    async refresh(consumer, { value }) {
      const located = await groupOf(consumer);
      if (located === undefined) throw notConfigured(consumer);
      const { organization, location } = located;
      // Uses the variables that are listed as copies now, because the list may have changed since the plan.
      const copies = copiesOf(organization, location, consumer);
      if (copies.length === 0) throw notDeclared(consumer);
      const secret = await value();
      const changedMeanwhile: string[] = [];
      for (const [index, variable] of copies.entries()) {
        const replaced = organization.replaceVariable(variable, secret);
        // A failure after the first variable is unclear (some of the change was made), because the group has already changed.
        const { changedByOthers } = await (index > 0 ? replaced.catch(throwUnclear) : replaced);
        changedMeanwhile.push(...changedByOthers);
      }
      return { changedMeanwhile };
    },

    async check(consumer) {
      const located = await groupOf(consumer);
      if (located === undefined) return NOT_CONFIGURED;
      const { organization, location } = located;
      const group = await organization.client.variableGroup(location.projectId, location.groupId);
      if (group === undefined) return NOT_SEEN;
      if (group.type === "AzureKeyVault") {
        // A linked group stores no value: each pipeline run reads the current version.
        const linked =
          isSameName(group.providerData?.vault ?? "", consumer.vaultName) &&
          Object.keys(group.variables ?? {}).some((name) => isSameName(name, consumer.secretName));
        return { holds: linked ? "new" : "gone" };
      }
      // A stored copy can't be read. The only evidence of the new value is that DevOps accepted it in `refresh`.
      const copies = copiesOf(organization, location, consumer);
      const exists = await Promise.all(copies.map((one) => organization.hasSecretVariable(one)));
      return { holds: exists.includes(true) ? "new" : "gone" };
    },
  };
}

/** Refreshes service connections that sign in with a copy of an application's client secret. */
export function serviceConnectionConsumers(deps: DevopsDeps): KindOfConsumer {
  async function connectionOf(consumer: PlannedConsumer) {
    const located = await locate(deps, consumer);
    if (located?.connectionId === undefined) return undefined;
    const { organization, projectId, connectionId } = located;
    return { organization, location: { projectId, connectionId } };
  }

  return {
    canCheck: () => true,

    async currentProblem(consumer) {
      const located = await connectionOf(consumer);
      const text = await located?.organization.signInProblem(located.location, credentialOf(consumer));
      return text === undefined ? undefined : { text, isTemporary: false };
    },

    async isNewPlace(consumer) {
      const located = await connectionOf(consumer);
      return !(await located?.organization.wasWritten(located.location, credentialOf(consumer)));
    },

    async refresh(consumer, { value }) {
      const located = await connectionOf(consumer);
      if (located === undefined) throw notConfigured(consumer);
      const { organization, location } = located;
      const { changedByOthers } = await organization.replaceConnectionSecret(
        location,
        credentialOf(consumer),
        await value(),
      );
      return { changedMeanwhile: changedByOthers };
    },

    async check(consumer) {
      const located = await connectionOf(consumer);
      if (located === undefined) return NOT_CONFIGURED;
      const works = await located.organization.signsIn(located.location, credentialOf(consumer));
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
