import { Badge, Button, Link, Spinner, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, client, type Problem, type Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { isolated } from "./isolated.ts";
import { BY_CURSOR } from "./paged-table.tsx";
import { ProblemNotice } from "./problem-notice.tsx";
import { QueryResult } from "./query-result.tsx";
import { Unavailable, useWhyNot } from "./unavailable.tsx";

type Application = Schemas["Application"];
type Credential = Schemas["ApplicationCredential"];
type Match = Schemas["RotationMatch"];

/** Candidates that are shown with a test button. The application's page lists all of them. */
const SHOWN_CANDIDATES = 3;

/**
 * Shows whether a client secret can be rotated: "Ready", "Confirm the match" or "Not possible". Each state says what the user
 * can do next.
 */
export function RotationReadiness({ application, credential }: { application: Application; credential: Credential }) {
  if (application.reasons.length > 0)
    return (
      <div>
        <Badge appearance="tint" color="danger">
          Not possible
        </Badge>{" "}
        {application.reasons.map(({ code, message }) => (
          <Text key={code} block>
            {message}
          </Text>
        ))}
      </div>
    );
  return <Stored application={application} credential={credential} />;
}

/**
 * The state of a client secret that the service may rotate: ready if a vault secret is proven to store it, otherwise the
 * candidates to test.
 */
function Stored({
  application: { appId },
  credential: { keyId },
}: {
  application: Application;
  credential: Credential;
}) {
  const params = { path: { app_id: appId }, query: { limit: 100 } };
  const matches = api.useInfiniteQuery("get", "/api/automation/rotation/apps/{app_id}/matches", { params }, BY_CURSOR);
  return (
    <QueryResult of={matches}>
      {({ pages }) => {
        const items = pages.flatMap((page) => page.items);
        const usable = items.filter((match) => match.enabled && (match.keyId === null || match.keyId === keyId));
        const proven = usable.filter((match) => isProven(match, keyId));
        return proven.length > 0 ? <Ready matches={proven} /> : <Unproven appId={appId} candidates={usable} />;
      }}
    </QueryResult>
  );
}

/**
 * Returns whether the vault secret is proven to store the client secret, by its metadata, a user or a test sign-in. Rotations
 * write only to proven vault secrets. The preview of a rotation tests the value again.
 */
const isProven = ({ confidence, keyId: matchedKeyId }: Match, keyId: string): boolean =>
  confidence === "certain" && matchedKeyId === keyId;

const Ready = ({ matches }: { matches: Match[] }) => (
  <Text>
    <Badge appearance="tint" color="success">
      Ready
    </Badge>{" "}
    Select Rotate secret. The new secret is saved to{" "}
    {matches.map(({ assetId }, index) => (
      <span key={assetId}>
        {index > 0 && ", "}
        <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{isolated(assetId)}</Link>
      </span>
    ))}
    .
  </Text>
);

function Unproven({ appId, candidates }: { appId: string; candidates: Match[] }) {
  const shown = candidates.slice(0, SHOWN_CANDIDATES);
  return (
    <div>
      <Badge appearance="tint" color="warning">
        Confirm the match
      </Badge>{" "}
      <Text>
        {candidates.length === 0
          ? "The service found no key vault secret that stores this client secret. To rotate it, clear 'Save the new secret to Key Vault' in the rotation, and collect the new secret from the handover vault."
          : "No key vault secret is proven to store this client secret. A test reads the value once and signs in with it. The value is not shown or stored."}
      </Text>
      <ul>
        {shown.map((match) => (
          <li key={match.assetId}>
            <Link href={createHref(`/inventory/${encodeURIComponent(match.assetId)}`)}>{isolated(match.assetId)}</Link>{" "}
            may store it. <TestMatch appId={appId} match={match} />
          </li>
        ))}
      </ul>
      <Link href={createHref(`/rotation/apps/${appId}`)}>
        {candidates.length > shown.length ? `All ${candidates.length} possible matches` : "Matches of the application"}
      </Link>
    </div>
  );
}

/** The button that tests a match at once, and its result. Needs no form, because a test changes nothing. */
function TestMatch({ appId, match: { assetId } }: { appId: string; match: Match }) {
  const queries = useQueryClient();
  const whyNot = useWhyNot()("verifyRotationMatch");
  const [isBusy, setBusy] = useState(false);
  const [message, setMessage] = useState("");
  const [problem, setProblem] = useState<Problem>();
  if (whyNot !== undefined) return <Unavailable title="Test match" reason={whyNot} />;
  async function test() {
    setBusy(true);
    setProblem(undefined);
    const { data, error } = await client.POST("/api/automation/rotation/apps/{app_id}/matches/verify", {
      params: { path: { app_id: appId } },
      body: { assetId },
    });
    if (error) setProblem(error);
    else setMessage(data.message);
    await queries.invalidateQueries();
    setBusy(false);
  }
  return (
    <>
      <Button
        size="small"
        aria-label={`Test match: ${assetId}`}
        data-operation="verifyRotationMatch"
        disabledFocusable={isBusy}
        onClick={() => void test()}
      >
        Test match
      </Button>{" "}
      {isBusy && <Spinner size="tiny" label="Testing" labelPosition="after" />}
      <span role="status">{message}</span>
      {problem && <ProblemNotice problem={problem} />}
    </>
  );
}
