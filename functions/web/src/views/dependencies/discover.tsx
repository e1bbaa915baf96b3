import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { untilOver } from "../../parts/follow.ts";
import { Operate } from "../../parts/operate.tsx";

type Run = Schemas["DependencyRun"];

/** Reads anew who uses what, and says how far that is. */
export function Discover() {
  const [runId, follow] = useState<string>();
  return (
    <div>
      <Operate
        operation="discoverDependencies"
        title="Read who uses what"
        action="Read"
        submit={async (_, discover) => follow((await discover({})).runId)}
      >
        <Text>All resources, pipelines and logs are looked into. Nothing is changed.</Text>
      </Operate>
      {runId !== undefined && <Progress runId={runId} />}
    </div>
  );
}

function Progress({ runId }: { runId: string }) {
  const run = api.useQuery(
    "get",
    "/api/assets/dependencies/runs/{run_id}",
    { params: { path: { run_id: runId } } },
    untilOver<Run>(({ status }) => status !== "queued" && status !== "running"),
  );
  return (
    <div role="status">
      <Answer of={run}>
        {({ status, resources, edges, failures }) => (
          <>
            {resources === null ? status : `${status}: ${resources} consumers, ${edges ?? 0} uses.`}
            {failures.map(({ source, unit, message, remedy }) => (
              <Text key={`${source} ${unit}`} block>
                {unit ?? source}: {message} {remedy}
              </Text>
            ))}
          </>
        )}
      </Answer>
    </div>
  );
}
