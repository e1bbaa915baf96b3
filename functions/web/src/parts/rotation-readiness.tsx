import { Badge, Button, Link, Spinner, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type ComponentProps, useState } from "react";
import { useMay } from "../api/access.ts";
import { api, client, type Problem, type Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { deleteSecretCommand } from "./asset-commands.ts";
import { titleOfId } from "./asset-name.ts";
import { Copyable } from "./copyable.tsx";
import { BY_CURSOR } from "./paged-table.tsx";
import { counted } from "./plural.ts";
import { ProblemNotice } from "./problem-notice.tsx";
import { QueryResult } from "./query-result.tsx";
import { RotateClientSecret } from "./rotate-client-secret.tsx";
import { HANDOVER, MATCH_EVIDENCE, MATCH_MEANING } from "./rotation-texts.ts";
import { Unavailable, useWhyNot } from "./unavailable.tsx";

type Application = Schemas["Application"];
type Credential = Schemas["ApplicationCredential"];
type Match = Schemas["RotationMatch"];

interface Props {
  application: Application;
  credential: Credential;
  /** Whether the state is shown on the application's page, which lists all matches below. */
  isOnApplicationPage?: boolean;
  /** Whether the test of a match is the main action of the view. */
  isMainAction?: boolean;
}

/** Maximum numbers of candidates with a test button, in view and folded. The application's page lists all matches. */
const MAX_SHOWN_CANDIDATES = 3;
const MAX_FOLDED_CANDIDATES = 20;

/**
 * Returns why the secrets of an application can't be rotated now. Leaves out the reason that an expired secret must be deleted
 * first, because the rotation deletes it if the user selects that.
 */
export const rotationBlockers = ({ reasons }: Pick<Application, "reasons">): Application["reasons"] =>
  reasons.filter(({ code }) => code !== "expiredSecretInTheWay");

/**
 * Shows whether a client secret can be rotated: "Ready", "No confirmed match" (or "No match found") or "Not possible". Each state
 * says what the user can do next.
 */
export function RotationReadiness(props: Props) {
  const { application, credential } = props;
  const blockers = rotationBlockers(application);
  return blockers.length > 0 ? (
    <NotPossible appId={application.appId} keyId={credential.keyId} reasons={blockers} />
  ) : (
    <MatchState {...props} />
  );
}

/** Why a rotation is not possible, and what to change so that it is. */
function NotPossible({ appId, keyId, reasons }: Pick<Application, "appId" | "reasons"> & { keyId: string }) {
  const mayCheckPermissions = useMay()("checkPermissions");
  return (
    <div>
      <Badge appearance="tint" color="informative">
        Not possible
      </Badge>
      {reasons.map(({ code, message }) => (
        <Text key={code} block>
          {message}{" "}
          {code === "notPermitted" &&
            (mayCheckPermissions ? (
              <Link href={createHref("/permissions")}>Check the permissions of the service</Link>
            ) : (
              "Ask an administrator."
            ))}
        </Text>
      ))}
      {reasons.some(({ code }) => code === "notOwner") && <AddServiceAsOwner appId={appId} />}
      {reasons.some(({ code }) => code === "noRoomForSecret") && (
        <>
          <Text block>
            The <Link href={createHref(`/rotation/apps/${appId}`)}>application's page</Link> says when each secret was
            last used, as far as sign-in logs are connected.
          </Text>
          <Copyable label="Delete this secret if it is unused (Azure CLI)" text={deleteSecretCommand(appId, keyId)} />
        </>
      )}
      <Text block>
        After the change, select <Link href={createHref("/rotation")}>Refresh applications</Link> on the Rotation page.
      </Text>
    </div>
  );
}

/** The command that makes the service an owner of the application, so that the service may add secrets. */
function AddServiceAsOwner({ appId }: Pick<Application, "appId">) {
  const identity = api.useQuery("get", "/identity");
  const objectId = identity.data?.objectId;
  if (objectId == null) return null;
  return (
    <Copyable
      label="Add the service as an owner (Azure CLI)"
      text={`az ad app owner add --id ${appId} --owner-object-id ${objectId}`}
    />
  );
}

/** Returns the matches of an application. All components of the view share one response. */
function useMatches(appId: string) {
  const params = { path: { app_id: appId }, query: { limit: 100 } };
  return api.useInfiniteQuery("get", "/api/automation/rotation/apps/{app_id}/matches", { params }, BY_CURSOR);
}

/**
 * Returns the candidates for a client secret (enabled matches that may store it), and the candidates that are proven to store it.
 * A match has no key ID if its evidence fits several client secrets.
 */
function matchesOf({ pages }: { pages: { items: Match[] }[] }, keyId: string) {
  const items = pages.flatMap((page) => page.items);
  const candidates = items.filter((match) => match.enabled && (match.keyId === null || match.keyId === keyId));
  return { candidates, proven: candidates.filter((match) => isProven(match, keyId)) };
}

/**
 * The button "Rotate secret" of an application without blockers. The button is not available while there are only unconfirmed candidates:
 * the next step is then the test of a match, which `RotationReadiness` offers.
 */
export function RotateConfirmed(props: ComponentProps<typeof RotateClientSecret>) {
  const { application, credential } = props;
  const matches = useMatches(application.appId);
  const whyNot = useWhyNot()("rotateSecret");
  if (whyNot !== undefined) return <Unavailable title="Rotate secret" reason={whyNot} />;
  return (
    <QueryResult of={matches}>
      {(data) => {
        const { candidates, proven } = matchesOf(data, credential.keyId);
        return candidates.length > 0 && proven.length === 0 ? (
          <Unavailable
            title="Rotate secret"
            reason="Test or confirm a match first: the key vault secret that stores this client secret."
          />
        ) : (
          <RotateClientSecret {...props} isWithoutMatch={candidates.length === 0} />
        );
      }}
    </QueryResult>
  );
}

/**
 * The state of a client secret that the service may rotate: ready if a vault secret is proven to store it, otherwise the
 * candidates to test.
 */
function MatchState(props: Props) {
  const { application, credential } = props;
  const matches = useMatches(application.appId);
  return (
    <QueryResult of={matches}>
      {(data) => {
        const { candidates, proven } = matchesOf(data, credential.keyId);
        return proven.length > 0 ? <Ready matches={proven} /> : <Unproven {...props} candidates={candidates} />;
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

function Ready({ matches }: { matches: Match[] }) {
  const mayRotate = useMay()("rotateSecret");
  return (
    <Text>
      <Badge appearance="tint" color="success">
        Ready
      </Badge>{" "}
      {mayRotate ? "Select Rotate secret, then check the preview." : "A user with the role admin can rotate it."} The
      new secret is saved to{" "}
      {matches.map(({ assetId }, index) => (
        <span key={assetId}>
          {index > 0 && ", "}
          <AssetLink assetId={assetId} />
        </span>
      ))}
      .
    </Text>
  );
}

const AssetLink = ({ assetId }: { assetId: string }) => (
  <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{titleOfId(assetId)}</Link>
);

/**
 * The vault secrets that may store the client secret, to test them. Candidates that have only a date in common with the client
 * secret are folded. If there are no others, the first one is not folded. A vault secret with a name like the application's is
 * never folded for its dates: people look for it.
 */
function Unproven({
  application,
  credential,
  candidates,
  isOnApplicationPage = false,
  isMainAction = false,
}: Props & { candidates: Match[] }) {
  const { appId } = application;
  const may = useMay();
  const mayConfirm = may("confirmRotationMatch");
  const mayRotate = may("rotateSecret");
  const likely = candidates.filter(
    ({ confidence, evidence }) => confidence !== "possible" || evidence.includes("name"),
  );
  const shown = likely.length > 0 ? likely.slice(0, MAX_SHOWN_CANDIDATES) : candidates.slice(0, 1);
  const folded = candidates.filter((match) => !shown.includes(match));
  return (
    <div>
      <Badge appearance="tint" color="warning">
        {candidates.length === 0 ? "No match found" : "No confirmed match"}
      </Badge>{" "}
      <Text>
        {candidates.length === 0
          ? `The service found no key vault secret that stores this client secret. You can still rotate it. ${HANDOVER}`
          : `${MATCH_MEANING} A test reads the value once and signs in with it. The value is not shown or stored. If the sign-in succeeds, the client secret can be rotated.`}
      </Text>
      <Candidates appId={appId} of={shown} isMainAction={isMainAction} />
      {/* The application's page lists all matches below. */}
      {folded.length > 0 && !isOnApplicationPage && (
        <details>
          <summary>Other candidates</summary>
          <Candidates appId={appId} of={folded.slice(0, MAX_FOLDED_CANDIDATES)} />
        </details>
      )}
      {isOnApplicationPage && folded.length > 0 && (
        <Text block>
          {counted(folded.length, "other key vault secret")} may store it: see the card Matching key vault secrets.
        </Text>
      )}
      {!isOnApplicationPage && (
        <Link href={createHref(`/rotation/apps/${appId}`)}>
          {mayConfirm && candidates.length > 0 ? "Confirm a match without a test" : "Matches of the application"}
        </Link>
      )}
      {candidates.length > 0 && mayRotate && (
        <Text block>
          If no key vault secret stores it:{" "}
          <RotateClientSecret
            application={application}
            credential={credential}
            title="Rotate without a match"
            isWithoutMatch
          />{" "}
          {HANDOVER}
        </Text>
      )}
    </div>
  );
}

/**
 * Vault secrets that may store the client secret, each with a test button. The first one is the most likely, so its button is the
 * main action of the view if the test is.
 */
const Candidates = ({
  appId,
  of: candidates,
  isMainAction = false,
}: {
  appId: string;
  of: Match[];
  isMainAction?: boolean;
}) => (
  <ul>
    {candidates.map((match, index) => (
      <li key={match.assetId}>
        <AssetLink assetId={match.assetId} /> {match.confidence === "possible" ? "may store it" : "probably stores it"}:{" "}
        {match.evidence.map((reason) => MATCH_EVIDENCE[reason]).join(", ")}.{" "}
        <TestMatch appId={appId} match={match} isMainAction={isMainAction && index === 0} />
      </li>
    ))}
  </ul>
);

/** The button that tests a match at once, and its result. Needs no form, because a test changes nothing. */
function TestMatch({
  appId,
  match: { assetId },
  isMainAction,
}: {
  appId: string;
  match: Match;
  isMainAction: boolean;
}) {
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
        appearance={isMainAction ? "primary" : "secondary"}
        aria-label={`Test match: ${titleOfId(assetId)}`}
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
