import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { kindOf, REFRESHES } from "../../parts/dependency-texts.ts";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { isolated } from "../../parts/isolated.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Graph } from "./graph.tsx";
import { Rotate } from "./rotate.tsx";
import { Usage } from "./usage.tsx";

type Radius = Schemas["BlastRadius"];

/** The consumers of one asset and the effect of a rotation on each, as a graph and as a list. */
export default function BlastRadius() {
  const { assetId = "" } = useParams();
  return (
    <FeatureGate
      operation="getBlastRadius"
      description="Shows the consumers of this asset and the effect of a rotation on each of them."
    >
      <Loaded assetId={assetId} />
    </FeatureGate>
  );
}

function Loaded({ assetId }: { assetId: string }) {
  const radius = api.useQuery("get", "/api/assets/dependencies/blast-radius/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <QueryResult of={radius}>
      {(data) => (
        <View title={`Blast radius of ${data.secret}`}>
          <Text>
            Score: <strong>{data.score}</strong> of 100, {data.more && "at least "}
            {data.total.toLocaleString()} consumers.{" "}
            <Link href={createHref(`/inventory/${encodeURIComponent(data.secret)}`, {})}>Asset details</Link>
          </Text>
          <Rotate radius={data} />
          <Card title="Graph">
            <Graph nodes={data.nodes} edges={data.edges} />
            {data.leftOut > 0 && <Text>{data.leftOut.toLocaleString()} more consumers are not drawn.</Text>}
          </Card>
          <Card title="Score factors">
            {data.drivers.length === 0 ? (
              <Text>No consumers found.</Text>
            ) : (
              <ul>
                {data.drivers.map(({ driver, message, points }) => (
                  <li key={driver}>
                    {message} ({points} points)
                  </li>
                ))}
              </ul>
            )}
          </Card>
          <Card title="Consumers">
            <Consumers consumers={data.consumers} />
          </Card>
          <Card title="Reads in logs">
            <Usage assetId={data.secret} />
          </Card>
          <Card title="Not read">
            <Gaps coverage={data.coverage} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

function Consumers({ consumers }: Pick<Radius, "consumers">) {
  if (consumers.length === 0) return <Text>No consumers found.</Text>;
  return (
    <ul>
      {consumers.map(({ resource, strength, effect, refresh, evidence, resolved }) => (
        <li key={`${resource.id} ${strength}`}>
          <strong>{isolated(resource.name)}</strong> ({kindOf(resource)}){" "}
          <Badge appearance="tint">{REFRESHES[refresh]}</Badge> {effect} {evidence.map(isolated).join(", ")}
          {resolved === false && " Its Key Vault reference is not resolved."}
        </li>
      ))}
    </ul>
  );
}

function Gaps({ coverage: { total, items } }: Pick<Radius, "coverage">) {
  if (total === 0) return <Text>Dependency discovery read everything.</Text>;
  return (
    <>
      <Text>Dependency discovery could not read {total.toLocaleString()} scopes, so there may be more consumers.</Text>
      <ul>
        {items.map(({ scope, source, code, message, remedy }) => (
          <li key={`${scope} ${source} ${code}`}>
            {scope}: {message} {remedy}
          </li>
        ))}
      </ul>
      <Link href={createHref("/dependencies", {})}>Show all</Link>
    </>
  );
}
