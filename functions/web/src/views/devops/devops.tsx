import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { LongField, TextField } from "../../parts/fields.tsx";
import { typed, typedOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Offered } from "../../parts/offered.tsx";
import { Operate } from "../../parts/operate.tsx";
import { View } from "../../parts/view.tsx";
import { Found } from "./found.tsx";
import { Projects } from "./projects.tsx";

type Settings = Schemas["DevopsSettings"];

/** The organization of Azure DevOps that is looked into, and what was found there. */
export default function Devops() {
  return (
    <View title="Azure DevOps">
      <Card title="Organization">
        <Offered
          operation="getDevopsSettings"
          what="Which variable groups read a key vault, and which service connections sign in with an application's secret."
        >
          <Organization />
        </Offered>
      </Card>
      <Card title="What it finds">
        <Offered
          operation="listDependencies"
          what="Variable groups and service connections become dependencies, and a rotation gives them the new value."
        >
          <Found />
        </Offered>
      </Card>
    </View>
  );
}

function Organization() {
  const settings = api.useQuery("get", "/api/settings/integrations/devops");
  return (
    <Answer of={settings}>
      {(now) => (
        <>
          <Text>
            {now.orgUrl === null ? "None is looked into." : `${now.orgUrl}.`}
            {now.updatedAt && (
              <>
                {" "}
                Changed by {now.updatedBy} <Instant at={now.updatedAt} relative />.
              </>
            )}
          </Text>
          <div>
            <Operate
              operation="putDevopsSettings"
              title="Change the organization"
              action="Save"
              submit={(form, put) =>
                put({ params: { header: { "If-Match": now.etag } }, body: { orgUrl: typedOrNull(form, "orgUrl") } })
              }
            >
              <TextField
                name="orgUrl"
                label="Address of the organization"
                hint="https://dev.azure.com/{organization}. Empty switches it off."
                type="url"
                defaultValue={now.orgUrl ?? ""}
              />
            </Operate>{" "}
            {now.orgUrl !== null && (
              <Operate
                operation="testDevops"
                title="Test"
                action="Test"
                submit={async (_, test) => <Outcome of={await test({})} />}
              >
                <Text>Looks what the service's identity can see and change there. Nothing is changed.</Text>
              </Operate>
            )}
          </div>
          {now.orgUrl !== null && <Projects now={now} />}
          <Copies now={now} />
        </>
      )}
    </Answer>
  );
}

const STEPS: Record<Schemas["DevopsTest"]["steps"][number]["step"], string> = {
  signIn: "Signs in",
  projects: "Sees projects",
  project: "Sees the project",
  variableGroups: "Variable groups",
  serviceConnections: "Service connections",
};

const Outcome = ({ of: { ok, identity, steps, projectsNotTested } }: { of: Schemas["DevopsTest"] }) => (
  <>
    <Text block weight="semibold">
      {ok ? "It works" : "It does not work yet"}
      {identity && `, as ${identity.name ?? identity.id}`}.
    </Text>
    <ul>
      {steps.map(({ step, project, ok: isGood, found, changeable, detail, remedy }) => (
        <li key={`${step} ${project}`}>
          {STEPS[step]}
          {project && ` of ${project}`}: {isGood ? "good" : "not good"}
          {found !== null && `, ${found} seen`}
          {changeable !== null && `, ${changeable} may be changed`}. {detail} {remedy}
        </li>
      ))}
    </ul>
    {projectsNotTested > 0 && <Text block>{projectsNotTested} more projects were not tried.</Text>}
  </>
);

/** Secret variables that hold a copy of a vault's secret. DevOps shows no value, so that only people can say so. */
function Copies({ now: { copies, etag } }: { now: Settings }) {
  return (
    <>
      <Text weight="semibold">Variables that hold a copy of a vault's secret</Text>
      {copies.length === 0 ? (
        <Text>None is named.</Text>
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
          title="Change the copies"
          action="Save"
          submit={(form, put) =>
            put({ params: { header: { "If-Match": etag } }, body: { copies: copiesOf(typed(form, "copies")) } })
          }
        >
          <LongField
            name="copies"
            label="Copies"
            hint="A line each: project id, number of the variable group, variable, vault/secret"
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
