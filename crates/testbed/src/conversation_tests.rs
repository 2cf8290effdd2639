use super::*;

const LOSE: Fate = Fate::LoseReply { once: true };
const REPLY: Answer = Answer::Reply(Fate::Pass);
const LOST: Answer = Answer::Reply(LOSE);

fn strings(sigil: char, strings: &str) -> String {
    let strings: Vec<&str> = strings.split(' ').collect();
    let bulks: String = strings
        .iter()
        .map(|text| format!("${}\r\n{text}\r\n", text.len()))
        .collect();
    format!("{sigil}{}\r\n{bulks}", strings.len())
}

fn ask(conversation: &mut Conversation, request: &str, fate: Fate) {
    conversation.asked(strings('*', request).as_bytes(), fate);
}

fn ask_all(requests: &[&str]) -> Conversation {
    let mut conversation = Conversation::default();
    for request in requests {
        ask(&mut conversation, request, Fate::Pass);
    }
    conversation
}

/// A frame like a push: an array in RESP2.
fn replied(conversation: &mut Conversation, frame: &str) -> Answer {
    conversation.answered(strings('*', frame).as_bytes())
}

fn pushed(conversation: &mut Conversation, frame: &str) -> Answer {
    conversation.answered(strings('>', frame).as_bytes())
}

fn in_resp3() -> Conversation {
    let mut conversation = ask_all(&["HELLO 3"]);
    assert_eq!(conversation.answered(b"%1\r\n+proto\r\n:3\r\n"), REPLY);
    conversation
}

#[test]
fn replies_come_in_the_order_of_requests() {
    let mut conversation = ask_all(&["GET a"]);
    ask(&mut conversation, "EVALSHA x 0", LOSE);
    ask(&mut conversation, "GET b", Fate::Pass);
    ask(&mut conversation, "GET c", Fate::Pass);
    assert_eq!(conversation.answered(b"$1\r\na\r\n"), REPLY);
    assert_eq!(
        conversation.answered(b">2\r\n+invalidate\r\n*0\r\n"),
        Answer::Push
    );
    assert_eq!(conversation.answered(b"|1\r\n+a\r\n+b\r\n:1\r\n"), LOST);
    assert_eq!(conversation.answered(b"$1\r\nb\r\n"), REPLY);
    assert_eq!(conversation.answered(b"$1\r\nc\r\n"), REPLY);
    assert_eq!(
        conversation.answered(b"-ERR max number of clients reached\r\n"),
        Answer::Push
    );
}

#[test]
fn empty_requests_have_no_reply() {
    let mut conversation = Conversation::default();
    conversation.asked(b"\r\n", Fate::Pass);
    conversation.asked(b"*0\r\n", Fate::Pass);
    ask(&mut conversation, "EVALSHA x 0", LOSE);
    assert_eq!(conversation.answered(b":1\r\n"), LOST);
}

#[test]
fn a_subscriber_in_resp2_gets_arrays_that_are_no_replies() {
    let mut conversation = ask_all(&["SUBSCRIBE a b", "PING"]);
    assert_eq!(replied(&mut conversation, "subscribe a"), Answer::Push);
    assert_eq!(
        replied(&mut conversation, "message a hello"),
        Answer::Message
    );
    assert_eq!(replied(&mut conversation, "subscribe b"), Answer::Push);
    assert_eq!(
        replied(&mut conversation, "pmessage p a hello"),
        Answer::Message
    );
    assert_eq!(replied(&mut conversation, "pong x"), REPLY);
    assert!(conversation.asked.is_empty());
}

#[test]
fn an_array_that_looks_like_a_message_is_a_reply_without_a_subscription() {
    let mut resp2 = ask_all(&["LRANGE l 0 -1"]);
    assert_eq!(replied(&mut resp2, "message a hello"), REPLY);
    let mut resp3 = in_resp3();
    ask(&mut resp3, "SUBSCRIBE a", Fate::Pass);
    assert_eq!(pushed(&mut resp3, "subscribe a"), Answer::Push);
    ask(&mut resp3, "EVALSHA x 0", LOSE);
    assert_eq!(pushed(&mut resp3, "smessage a hello"), Answer::Message);
    assert_eq!(replied(&mut resp3, "message a hello"), LOST);
}

#[test]
fn a_refused_subscription_is_answered_by_its_error() {
    let mut conversation = in_resp3();
    ask(&mut conversation, "SUBSCRIBE a b", Fate::Pass);
    ask(&mut conversation, "EVALSHA x 0", LOSE);
    assert_eq!(conversation.answered(b"-NOPERM no\r\n"), REPLY);
    assert_eq!(conversation.answered(b":1\r\n"), LOST);
}

#[test]
fn unsubscribing_from_all_is_confirmed_for_each_channel_or_once() {
    for push in [replied, pushed] {
        let mut conversation = ask_all(&["SUBSCRIBE a b", "UNSUBSCRIBE"]);
        for frame in [
            "subscribe a",
            "subscribe b",
            "unsubscribe a",
            "unsubscribe b",
        ] {
            assert_eq!(
                conversation.asked.len(),
                if frame.starts_with('u') { 1 } else { 2 }
            );
            assert_eq!(push(&mut conversation, frame), Answer::Push);
        }
        assert!(conversation.asked.is_empty());
        ask(&mut conversation, "UNSUBSCRIBE", Fate::Pass);
        assert_eq!(push(&mut conversation, "unsubscribe "), Answer::Push);
        assert!(conversation.asked.is_empty());
    }
}

#[test]
fn a_subscription_taken_away_answers_no_request() {
    let mut conversation = in_resp3();
    ask(&mut conversation, "SSUBSCRIBE a", Fate::Pass);
    assert_eq!(pushed(&mut conversation, "ssubscribe a"), Answer::Push);
    ask(&mut conversation, "SSUBSCRIBE b", Fate::Pass);
    assert_eq!(pushed(&mut conversation, "sunsubscribe a"), Answer::Push);
    assert_eq!(conversation.asked.len(), 1);
    assert_eq!(pushed(&mut conversation, "ssubscribe b"), Answer::Push);
    assert!(conversation.asked.is_empty());
}

#[test]
fn the_protocol_follows_hello_and_reset() {
    let mut conversation = in_resp3();
    ask(&mut conversation, "HELLO 9", Fate::Pass);
    assert_eq!(conversation.answered(b"-NOPROTO no\r\n"), REPLY);
    assert!(conversation.resp3);
    ask(&mut conversation, "HELLO 2", Fate::Pass);
    assert_eq!(conversation.answered(b"*2\r\n$5\r\nproto\r\n:2\r\n"), REPLY);
    assert!(!conversation.resp3);
    conversation = in_resp3();
    ask(&mut conversation, "SUBSCRIBE a", Fate::Pass);
    pushed(&mut conversation, "subscribe a");
    ask(&mut conversation, "RESET", Fate::Pass);
    ask(&mut conversation, "LRANGE l 0 -1", Fate::Pass);
    assert_eq!(conversation.answered(b"+RESET\r\n"), REPLY);
    assert_eq!(replied(&mut conversation, "message a hello"), REPLY);
    assert!(!conversation.resp3);
}
