import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { LongField, TextField } from "../../parts/fields.tsx";
import { typed, typedOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { View } from "../../parts/view.tsx";
import { Consumers } from "./consumers.tsx";
import { Projects } from "./projects.tsx";

type Settings = Schemas["DevopsSettings"];

/** The Azure DevOps organization that dependency discovery reads, and the consumers it found. */
export default function Devops() {
  return (
    <View title="Azure DevOps">
      <Card title="Organization">
        <FeatureGate
          operation="getDevopsSettings"
          description="Finds variable groups that read a key vault and service connections that sign in with an application's secret."
        >
          <Organization />
        </FeatureGate>
      </Card>
      <Card title="Consumers">
        <FeatureGate
          operation="listDependencies"
          description="Shows variable groups and service connections as consumers. A rotation updates them with the new value."
        >
          <Consumers />
        </FeatureGate>
      </Card>
    </View>
  );
}

function Organization() {
  const settings = api.useQuery("get", "/api/settings/integrations/devops");
  return (
    <QueryResult of={settings}>
      {(now) => (
        <>
          <Text>
            {now.orgUrl === null ? "No organization is connected." : `${now.orgUrl}.`}
            {now.updatedAt && (
              <>
                {" "}
                Last modified by {now.updatedBy} <Instant at={now.updatedAt} relative />.
              </>
            )}
          </Text>
          <div>
            <Operate
              operation="putDevopsSettings"
              title="Edit organization"
              action="Save"
              submit={(form, put) =>
                put({ params: { header: { "If-Match": now.etag } }, body: { orgUrl: typedOrNull(form, "orgUrl") } })
              }
            >
              <TextField
                name="orgUrl"
                label="Organization URL"
                hint="https://dev.azure.com/{organization}. Leave empty to disconnect."
                type="url"
                defaultValue={now.orgUrl ?? ""}
              />
            </Operate>{" "}
            {now.orgUrl !== null && (
              <Operate
                operation="testDevops"
                title="Test connection"
                action="Test connection"
                submit={async (_, test) => <Outcome of={await test({})} />}
              >
                <Text>
                  Checks what the service's identity can read and edit in the organization. This makes no changes.
                </Text>
              </Operate>
            )}
          </div>
          {now.orgUrl !== null && <Projects now={now} />}
          <Copies now={now} />
        </>
      )}
    </QueryResult>
  );
}

const STEPS: Record<Schemas["DevopsTest"]["steps"][number]["step"], string> = {
  signIn: "Sign-in",
  projects: "Projects",
  project: "Project",
  variableGroups: "Variable groups",
  serviceConnections: "Service connections",
};

const Outcome = ({ of: { ok, identity, steps, projectsNotTested } }: { of: Schemas["DevopsTest"] }) => (
  <>
    <Text block weight="semibold">
      {ok ? "Connection test passed" : "Connection test failed"}
      {identity && ` as ${identity.name ?? identity.id}`}.
    </Text>
    <ul>
      {steps.map(({ step, project, ok: passed, found, changeable, detail, remedy }) => (
        <li key={`${step} ${project}`}>
          {STEPS[step]}
          {project && ` of ${project}`}: {passed ? "passed" : "failed"}
          {found !== null && `, ${found} found`}
          {changeable !== null && `, ${changeable} can be edited`}. {detail} {remedy}
        </li>
      ))}
    </ul>
    {projectsNotTested > 0 && <Text block>{projectsNotTested} more projects were not tested.</Text>}
  </>
);

/** Secret variables with a copy of a vault secret. Azure DevOps never returns secret values, so users list the copies here. */
function Copies({ now: { copies, etag } }: { now: Settings }) {
  return (
    <>
      <Text weight="semibold">Variables with a copy of a vault secret</Text>
      {copies.length === 0 ? (
        <Text>No copies listed. List copies so that a rotation can update them.</Text>
      ) : (
        <ul>
          {copies.map(({ projectId, groupId, variable, vaultName, secretName }) => (
            <li key={`${projectId} ${groupId} ${variable}`}>
              {variable} of group {groupId} in {projectId}: {vaultName}/{secretName}
            </li>
          ))}
        </ul>
      )}
      <div>
        <Operate
          operation="putDevopsCopies"
          title="Edit copies"
          action="Save"
          submit={(form, put) =>
            put({ params: { header: { "If-Match": etag } }, body: { copies: copiesOf(typed(form, "copies")) } })
          }
        >
          <LongField
            name="copies"
            label="Copies"
            hint="One per line: project ID, variable group ID, variable, vault/secret"
            rows={6}
            defaultValue={copies
              .map((one) => `${one.projectId}, ${one.groupId}, ${one.variable}, ${one.vaultName}/${one.secretName}`)
              .join("\n")}
          />
        </Operate>
      </div>
    </>
  );
}

const copiesOf = (text: string): Settings["copies"] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [projectId = "", groupId = "", variable = "", secret = ""] = line.split(",").map((part) => part.trim());
      const [vaultName = "", secretName = ""] = secret.split("/");
      return { projectId, groupId: Number(groupId), variable, vaultName, secretName };
    });
