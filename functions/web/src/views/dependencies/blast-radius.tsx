import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { kindOf, REFRESHES } from "../../parts/dependency-words.ts";
import { isolated } from "../../parts/isolated.ts";
import { Offered } from "../../parts/offered.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Graph } from "./graph.tsx";
import { Rotate } from "./rotate.tsx";
import { Usage } from "./usage.tsx";

type Radius = Schemas["BlastRadius"];

/** What a rotation of one asset touches, as a picture and in words. */
export default function BlastRadius() {
  const { assetId = "" } = useParams();
  return (
    <Offered operation="getBlastRadius" what="Who uses this asset, and what a rotation would do to each.">
      <Loaded assetId={assetId} />
    </Offered>
  );
}

function Loaded({ assetId }: { assetId: string }) {
  const radius = api.useQuery("get", "/api/assets/dependencies/blast-radius/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  return (
    <Answer of={radius}>
      {(data) => (
        <View title={`Blast radius of ${data.secret}`}>
          <Text>
            <strong>{data.score}</strong> of 100, {data.more && "at least "}
            {data.total.toLocaleString()} consumers.{" "}
            <Link href={createHref(`/inventory/${encodeURIComponent(data.secret)}`, {})}>The asset</Link>
          </Text>
          <Rotate radius={data} />
          <Card title="Picture">
            <Graph nodes={data.nodes} edges={data.edges} />
            {data.leftOut > 0 && <Text>{data.leftOut.toLocaleString()} more are not drawn.</Text>}
          </Card>
          <Card title="What makes it so">
            {data.drivers.length === 0 ? (
              <Text>Nobody is known to use it.</Text>
            ) : (
              <ul>
                {data.drivers.map(({ driver, message, points }) => (
                  <li key={driver}>
                    {message} ({points})
                  </li>
                ))}
              </ul>
            )}
          </Card>
          <Card title="Consumers">
            <Consumers consumers={data.consumers} />
          </Card>
          <Card title="Who read it">
            <Usage assetId={data.secret} />
          </Card>
          <Card title="What could not be looked into">
            <NotSeen coverage={data.coverage} />
          </Card>
        </View>
      )}
    </Answer>
  );
}

function Consumers({ consumers }: Pick<Radius, "consumers">) {
  if (consumers.length === 0) return <Text>None is known.</Text>;
  return (
    <ul>
      {consumers.map(({ resource, strength, effect, refresh, evidence, resolved }) => (
        <li key={`${resource.id} ${strength}`}>
          <strong>{isolated(resource.name)}</strong> ({kindOf(resource)}){" "}
          <Badge appearance="tint">{REFRESHES[refresh]}</Badge> {effect} {evidence.map(isolated).join(", ")}
          {resolved === false && " Its reference can't be followed now."}
        </li>
      ))}
    </ul>
  );
}

function NotSeen({ coverage: { total, items } }: Pick<Radius, "coverage">) {
  if (total === 0) return <Text>All that can be read was looked into.</Text>;
  return (
    <>
      <Text>{total.toLocaleString()} places, so that there may be more consumers.</Text>
      <ul>
        {items.map(({ scope, source, code, message, remedy }) => (
          <li key={`${scope} ${source} ${code}`}>
            {scope}: {message} {remedy}
          </li>
        ))}
      </ul>
      <Link href={createHref("/dependencies", {})}>All of them</Link>
    </>
  );
}
