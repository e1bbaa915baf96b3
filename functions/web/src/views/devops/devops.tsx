import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { LongField, TextField } from "../../parts/fields.tsx";
import { fieldText, fieldTextOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { View } from "../../parts/view.tsx";
import { Consumers } from "./consumers.tsx";
import { Projects } from "./projects.tsx";

type Settings = Schemas["DevopsSettings"];

/** The Azure DevOps page: the organization that dependency discovery reads, and the consumers that it found there. */
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

/** The connected organization, if any, with its projects and the copies of secrets in it. */
function Organization() {
  const query = api.useQuery("get", "/api/settings/integrations/devops");
  return (
    <QueryResult of={query}>
      {(settings) => (
        <>
          <Text>
            {settings.orgUrl === null
              ? "No organization is connected, so consumers in Azure DevOps are not found. Select Connect organization to connect one."
              : `Connected organization: ${settings.orgUrl}.`}
            {settings.updatedAt && (
              <>
                {" "}
                Last modified by {settings.updatedBy} <Instant at={settings.updatedAt} relative />.
              </>
            )}
          </Text>
          <ButtonRow>
            <Operate
              operation="putDevopsSettings"
              title={settings.orgUrl === null ? "Connect organization" : "Edit organization"}
              action={settings.orgUrl === null ? "Connect organization" : "Save organization"}
              submit={(form, put) =>
                put({
                  params: { header: { "If-Match": settings.etag } },
                  body: { orgUrl: fieldTextOrNull(form, "orgUrl") },
                })
              }
            >
              <TextField
                name="orgUrl"
                label="Organization URL"
                hint={`Example: https://dev.azure.com/contoso.${settings.orgUrl === null ? "" : " Leave empty to disconnect the organization."}`}
                type="url"
                defaultValue={settings.orgUrl ?? ""}
              />
            </Operate>
            {settings.orgUrl !== null && (
              <Operate
                operation="testDevops"
                title="Test connection"
                action="Test connection"
                submit={async (_, test) => <Outcome of={await test({})} />}
              >
                <Text>
                  Signs in to the organization and checks which projects, variable groups and service connections the
                  service's identity can read and edit. This makes no changes.
                </Text>
              </Operate>
            )}
          </ButtonRow>
          {settings.orgUrl !== null && <Projects settings={settings} />}
          <Copies settings={settings} />
        </>
      )}
    </QueryResult>
  );
}

/** Steps of the connection test. `project`: access to one of the selected projects. */
const STEPS: Record<Schemas["DevopsTest"]["steps"][number]["step"], string> = {
  signIn: "Sign-in",
  projects: "Projects",
  project: "Project",
  variableGroups: "Variable groups",
  serviceConnections: "Service connections",
};

/** The result of a connection test. `changeable`: how many of the found items a rotation could update. */
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
    {projectsNotTested > 0 && <Text block>Not tested: {counted(projectsNotTested, "more project")}.</Text>}
  </>
);

/** Secret variables with a copy of a vault secret. Azure DevOps never returns secret values, so users list the copies here. */
function Copies({ settings: { copies, etag } }: { settings: Settings }) {
  return (
    <>
      <Text weight="semibold">Pipeline variables that contain a copy of a key vault secret</Text>
      {copies.length === 0 ? (
        <Text>
          No copies listed. Azure DevOps doesn't return the values of secret variables. If a variable contains a copy of
          a key vault secret, list it here, so that a rotation updates it.
        </Text>
      ) : (
        <ul>
          {copies.map(({ projectId, groupId, variable, vaultName, secretName }) => (
            <li key={`${projectId} ${groupId} ${variable}`}>
              Variable {variable} of variable group {groupId} in project {projectId}: copy of {vaultName}/{secretName}
            </li>
          ))}
        </ul>
      )}
      <div>
        <Operate
          operation="putDevopsCopies"
          title={copies.length === 0 ? "Add variables with copies" : "Edit variables with copies"}
          action="Save list"
          submit={(form, put) =>
            put({ params: { header: { "If-Match": etag } }, body: { copies: copiesOf(fieldText(form, "copies")) } })
          }
        >
          <Text>A rotation overwrites these variables. Saving changes nothing in Azure DevOps.</Text>
          <LongField
            name="copies"
            label="Variables with copies"
            hint="One per line: project ID, variable group ID, variable name, vault/secret. Example: 3f2b7c1e-5d4a-4c8e-9b60-7a1d2e4f8c35, 12, DB_PASSWORD, kv-billing-prod/sql-password"
            rows={6}
            defaultValue={copies
              .map(
                (copy) => `${copy.projectId}, ${copy.groupId}, ${copy.variable}, ${copy.vaultName}/${copy.secretName}`,
              )
              .join("\n")}
          />
        </Operate>
      </div>
    </>
  );
}

/**
 * Returns the copies in the text, whose lines have the form `project ID, variable group ID, variable, vault/secret`. The API
 * rejects a line with missing or wrong parts.
 */
const copiesOf = (text: string): Settings["copies"] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [projectId = "", groupId = "", variable = "", secret = ""] = line.split(",").map((part) => part.trim());
      const [vaultName = "", secretName = ""] = secret.split("/");
      return { projectId, groupId: Number(groupId), variable, vaultName, secretName };
    });
