import { Link, Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { Expiry, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { credentialTitle, historyFilter, textsOfKind } from "../../parts/key-credential.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { RotateCredential } from "../../parts/rotate-credential.tsx";
import { KeyRotationState } from "../../parts/rotate-key.tsx";
import { statusTextOf } from "../../parts/rotation-texts.ts";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { isInProgress, KEY_KINDS } from "./rows.ts";

type Credential = Schemas["RotationCredentialDetail"];
type Rotation = Schemas["RotationSummary"];

/** The page of one pair of keys of an Azure resource, or of a database login: what stores it, its rotation, and the earlier rotations. */
export default function OneCredential() {
  const { credentialId = "" } = useParams();
  return (
    <FeatureGate
      operation="getRotationCredential"
      description="Shows the vault secrets that store a key of an Azure resource or a database login, and the state of its rotation."
    >
      <Found credentialId={credentialId} />
    </FeatureGate>
  );
}

/** The content of the page. Rendered, and its data loaded, only if the role and the license allow it. */
function Found({ credentialId }: { credentialId: string }) {
  const mayRotate = useMay()("rotateCredential");
  const credential = api.useQuery("get", "/api/automation/rotation/credentials/{credential_id}", {
    params: { path: { credential_id: credentialId } },
  });
  return (
    <QueryResult of={credential}>
      {(data) => (
        <View title={credentialTitle(data)}>
          <Text>
            {KEY_KINDS[data.kind]} {isolated(data.resourceName)} in the resource group {isolated(data.resourceGroup)}.{" "}
            <Link href={createHref("/credentials")}>All credentials</Link>
          </Text>
          <Card title="Rotation">
            <KeyRotationState credential={data} />
            <ButtonRow>
              {/* The state above already says that a rotation is in progress. Others see whom to ask for a rotation. */}
              {(data.rotationId === null || !mayRotate) && <RotateCredential credential={data} />}
              {data.issuer === "databaseLogin" && <Unregister credential={data} />}
            </ButtonRow>
          </Card>
          <Card title="Stored in">
            {data.rotationId !== null && (
              <Text>
                The rotation in progress changes {textsOfKind(data.kind, "which key", "whose login")} these secrets
                store. The table shows the last comparison.
              </Text>
            )}
            <DataTable
              items={data.places}
              columns={placeColumns(data)}
              keyOf={({ assetId }) => assetId}
              label={`Vault secrets that store ${textsOfKind(data.kind, "a key", "the login")}`}
            />
          </Card>
          <Card title={rotationsTitle(data)}>
            <History credential={data} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

/** The button that forgets a registered database login. */
function Unregister({ credential }: { credential: Credential }) {
  const { credentialId, rotationId } = credential;
  if (rotationId !== null) return null;
  return (
    <Operate
      operation="deleteRotationCredential"
      title="Forget login"
      about={credentialTitle(credential)}
      action="Forget login"
      submit={async (_, forget) => {
        await forget({ params: { path: { credential_id: credentialId } } });
        location.hash = createHref("/credentials");
      }}
    >
      <Text>
        The service no longer rotates this login. The server and the key vaults stay unchanged. You can register the
        login again.
      </Text>
    </Operate>
  );
}

const rotationsTitle = ({ kind }: Credential): string => `Rotations of this ${textsOfKind(kind, "resource", "login")}`;

const placeColumns = ({ kind }: Credential): Column<Credential["places"][number]>[] => [
  {
    title: "Vault secret",
    cell: ({ assetId }) => (
      <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{titleOfId(assetId)}</Link>
    ),
  },
  { title: `${textsOfKind(kind, "Key", "User")} when last compared`, cell: ({ keyName }) => keyName },
  { title: "Expires", cell: ({ expiresOn }) => <Expiry at={expiresOn} /> },
  {
    title: "Last compared",
    cell: ({ comparedAt, comparedBy }) => (
      <>
        <Instant at={comparedAt} relative /> by {comparedBy === "rotation" ? "a rotation" : isolated(comparedBy)}
      </>
    ),
  },
];

const ROTATION_COLUMNS: Column<Rotation>[] = [
  {
    title: "Rotation",
    // The API type allows a null ID only because a dry run has none. Rows of the history always have one.
    cell: ({ rotationId, oldKeyId, newKeyId }) => (
      <Link href={createHref(`/rotation/${rotationId ?? ""}`)}>
        {oldKeyId} replaced by {newKeyId ?? "the other one"}
      </Link>
    ),
  },
  {
    title: "Status",
    cell: (rotation) => `${isInProgress(rotation) ? "In progress: " : ""}${statusTextOf(rotation)}`,
  },
  { title: "Started", cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
  { title: "Requested by", cell: ({ requestedBy }) => isolated(requestedBy) },
];

/** Number of recent rotations in the list. */
const SHOWN_ROTATIONS = 20;

/** The recent rotations of the keys of a resource, or of a database login, newest first. */
function History({ credential }: { credential: Credential }) {
  const history = api.useQuery("get", "/api/automation/rotation/history", {
    params: { query: { ...historyFilter(credential), limit: SHOWN_ROTATIONS } },
  });
  return (
    <QueryResult of={history}>
      {({ items }) =>
        items.length === 0 ? (
          <Text>No rotations yet. To start one, select Rotate {textsOfKind(credential.kind, "key", "login")}.</Text>
        ) : (
          <DataTable
            items={items}
            columns={ROTATION_COLUMNS}
            keyOf={({ rotationId, createdAt }) => rotationId ?? createdAt}
            label={rotationsTitle(credential)}
          />
        )
      }
    </QueryResult>
  );
}
