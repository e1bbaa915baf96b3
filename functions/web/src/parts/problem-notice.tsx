import { Button, MessageBar, MessageBarActions, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import type { Problem } from "../api/client.ts";
import { Instant } from "./instant.tsx";

interface Props {
  problem: Problem;
  /** Repeats the failed request. Without it, there is no "Try again" button. */
  retry?: () => void;
  /** Time of the response whose data is still shown below. */
  shownFrom?: Date;
}

/** Shows a problem document: what went wrong, how to fix it, and the request id for support. */
export function ProblemNotice({ problem, retry, shownFrom }: Props) {
  const { title, detail, errors = [], instance } = problem;
  // The detail of a validation problem can contain all its errors. They are then shown only once, as the list.
  const isRepeated = errors.length > 0 && errors.every(({ message }) => detail.includes(message));
  return (
    <MessageBar intent="error" layout="multiline" role="alert">
      <MessageBarBody>
        <MessageBarTitle>{title}</MessageBarTitle>
        {!isRepeated && detail}
        {errors.length > 0 && (
          <ul>
            {errors.map(({ path, message }) => (
              <li key={`${path} ${message}`}>
                {path.replace(/^(body|query)\./, "")}: {message}
              </li>
            ))}
          </ul>
        )}
        {shownFrom && (
          <div>
            The data below may be out of date. It was loaded <Instant at={shownFrom.toISOString()} relative />.
          </div>
        )}
        {instance !== "" && <div>Request ID: {instance}</div>}
      </MessageBarBody>
      {retry && (
        <MessageBarActions>
          <Button onClick={retry}>Try again</Button>
        </MessageBarActions>
      )}
    </MessageBar>
  );
}
