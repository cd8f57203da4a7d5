"""Sentences by which people ask for a call, for the lessons of ``tiny/tools-1M``.

Slots: {t} is a tool's name, {a} its arguments, {r} an answer that there is not yet; {verb}, {noun}
and {adj} are words of any meaning. None is of `SHAPES` and `CHAINS` in `tests.live.unseen_tools`.
"""

import re
from random import Random

from tests.pretrain.words import ADJECTIVES, COMMON, FILLERS, NOUNS, VERBS


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


WISHES = _lines(
    """
    use {t} for {a}
    use {t} on {a}
    use {t} with {a}
    use {t} to {verb} {a}
    use the tool {t} to see about {a}
    run {t} for {a}
    run {t} on {a}
    run the {t} tool with {a}
    call {t} with {a}
    call {t} on {a} for me
    make one call of {t}, with {a} as its input
    pass {a} to {t}
    pass {a} into {t}
    pass {t} the {noun} {a}
    put {a} through {t}
    put {a} into the {t} tool
    feed {t} {a}
    feed {a} to {t}
    send {a} to {t}
    send {a} off to {t}
    send {t} {a}
    give {t} {a}
    give {a} to {t}
    give {t} the {noun} {a}
    give {t} {a} as input
    hand {t} {a}
    offer {a} to {t}
    show {a} to {t}
    show {t} {a}
    bring {a} to {t}
    take {a} and give that to {t}
    take {a} to {t}
    take {t} for {a}
    take {t} and {verb} {a}
    type {a} into {t}
    enter {a} in {t}
    write {a} into {t}
    fill {a} into {t}
    submit {a} to {t}
    forward {a} to {t}
    supply {t} with {a}
    provide {t} with {a}
    provide {a} to {t}
    apply {t} to {a}
    try {t} with {a}
    try {t} on {a}
    start {t} with {a}
    start {t} on the {noun} {a}
    launch {t} for {a}
    trigger {t} with {a}
    open {t} with {a}
    work on {a} with {t}
    deal with {a} using {t}
    look {a} up with {t}
    look up {a} in {t}
    look at {a} through {t}
    look for {a} in {t}
    search {t} for {a}
    search for {a} with {t}
    check {a} with {t}
    check {a} against {t}
    check in {t} what {a} means
    check {t} for {a}
    see what {t} says about {a}
    see what {t} has on {a}
    see if {t} knows {a}
    find {a} in {t}
    find {a} by {t}
    find out about {a} with {t}
    find out from {t} what {a} is
    find the {noun} of {a} with {t}
    get {a} from {t}
    get the {noun} for {a} from {t}
    get the {noun} of {a} by calling {t}
    get me {a} out of {t}
    get {t} to {verb} {a}
    get {t} going on {a}
    learn from {t} about {a}
    read {a} with {t}
    pull up {a} in {t}
    pull {a} from {t}
    ask {t} about {a}
    ask {t} for {a}
    ask {t} to {verb} {a}
    ask {t} what the {noun} of {a} is
    ask the {t} tool for the {noun} of {a}
    tell {t} about {a}
    tell {t} {a}
    tell {t} to {verb} {a}
    tell me with {t} what {a} is
    tell me the {noun} of {a}, by {t}
    let {t} look at {a}
    let {t} {verb} {a}
    let {t} take {a}
    let {t} work on {a}
    let {t} see {a}
    make {t} {verb} {a}
    make {t} do {a}
    have {t} {verb} {a}
    have {t} look into {a}
    have {a} done by {t}
    {verb} {a} with {t}
    {verb} {a} using {t}
    {verb} {a} via {t}
    {verb} {a} in {t}
    {verb} {a} by calling {t}
    {verb} {a} by {t}
    {verb} {a} and use {t} for that
    {verb} {a} with the help of {t}
    {verb} {a} on {t}
    {verb} {a} from {t}
    {verb} the {noun} {a} with {t}
    {verb} the {noun} of {a} using {t}
    {verb} me {a} from {t}
    {verb} {a} for me, {t} is there for it
    {verb} {a} as {t} does it
    with {t}, {verb} {a}
    with {t} {verb} the {noun} {a}
    with the tool {t} find {a}
    using {t}, {verb} {a}
    through {t}, get {a}
    in {t}, look for {a}
    from {t}, get the {noun} of {a}
    for {a}, use {t}
    for {a} go to {t}
    for the {noun} {a} call {t}
    on {a}, run {t}
    go to {t} with {a}
    go and ask {t} about {a}
    turn to {t} for {a}
    turn {a} into a {noun} with {t}
    choose {t} and give it the {noun} {a}
    pick {t} for {a}
    pick the tool {t}, its input is {a}
    demand {a} from {t}
    """
)
"""What one wants done, in the base form: what follows an opening."""

OPENINGS = _lines(
    """
    please
    please,
    now
    now please
    first
    next
    again
    just
    quickly
    hi,
    hey,
    hello, please
    ok,
    well,
    so
    good morning, please
    can you
    can you please
    can you quickly
    could you
    could we
    would you
    would you please
    would you mind to
    will you
    you can
    you could
    you should
    you must
    you may
    you need to
    you have to
    you will have to
    i want to
    i want you to
    i need you to
    i need to
    i have to
    i must
    i wish to
    i like to
    i think you should
    i think we should
    i hope you can
    i was told to
    i am trying to
    i am here to
    we want to
    we need to
    we have to
    we should
    we must
    we will
    let us
    let me
    help me to
    help me
    be so kind and
    be so good and
    feel free to
    remember to
    do not forget to
    try to
    make sure to
    go ahead and
    my friend says to
    my boss wants me to
    my boss wants you to
    my brother asks you to
    the customer asks us to
    the team would have you
    they want us to
    someone has to
    it is time that you
    it is best to
    it is important to
    it is necessary to
    it would help to
    it would be nice to
    it would be great if you could
    the task is to
    the job is to
    the next step is to
    the plan is to
    your task is to
    your job today is to
    your turn:
    all you have to do is
    what you should do:
    what i need:
    what i want is to
    one thing to do:
    to do:
    task:
    today,
    before lunch,
    if you can,
    if possible,
    as soon as you can,
    when you are ready,
    for my colleague,
    for the report,
    """
)

STATEMENTS = _lines(
    """
    {t} {a}
    {t}: {a}
    {t}({a})
    {t} - {a}
    {t}, {a}
    {a} -> {t}
    {a}: {t}
    {a}, {t}
    {a} to {t}
    {a} with {t}
    {a} by {t}, please
    {a} in {t}
    {t} for {a}
    {t} on {a}
    {t} with {a}
    {t} of {a}
    {t} please: {a}
    {t} should {verb} {a}
    {t} should get {a}
    {t} must {verb} {a}
    {t} must know {a}
    {t} can {verb} {a}
    {t} can tell us about {a}
    {t} could {verb} {a} for us
    {t} will {verb} {a}
    {t} may know {a}
    {t} has to {verb} {a}
    {t} needs {a}
    {t} needs to {verb} {a}
    {t} wants {a}
    {t} takes {a}
    {t} expects {a}
    {t} gets {a}
    {t} knows the {noun} of {a}
    {t} is the tool for {a}
    {t} is what we need for {a}
    {t} is good at this: {a}
    {t} is to {verb} {a}
    {t} is waiting for {a}
    {t} is there to {verb} {a}
    {t} is asked for {a}
    {t} is my choice for {a}
    {t} was made for {a}
    {t} has the {noun} of {a}
    {t} has not seen {a} yet
    {t} has been given {a}
    {t} does the rest, with {a}
    {t} helps with {a}
    {t} would {verb} {a}
    {a} is for {t}
    {a} is what {t} needs
    {a} is what {t} should {verb}
    {a} is waiting for {t}
    {a} is the {noun} that {t} wants
    {a} is a case for {t}
    {a} is my {noun}. Use {t}
    {a} is all I know, so ask {t}
    {a} goes to {t}
    {a} goes into {t}
    {a} must go through {t}
    {a} must be sent to {t}
    {a} has to be passed to {t}
    {a} should be given to {t}
    {a} should go to the {t} tool
    {a} needs {t}
    {a} can be found by {t}
    {a} comes first; {t} does the rest
    {a} belongs into {t}
    {a} will do. Call {t}
    {a} was in my {noun}; what does {t} make of it?
    the {noun} is {a}, the tool is {t}
    the {noun} is {a}. Call {t}
    the {noun} {a} is for {t}
    the {noun} of {a} is in {t}
    the {noun} of {a} is what I need from {t}
    the input of {t} is {a}
    the input is {a} and the tool {t}
    the tool is {t} and the {noun} is {a}
    the tool {t} can {verb} {a}
    the tool {t} should see {a}
    the tool for that is {t}, with {a}
    the value for {t} is {a}
    the {adj} {noun} {a} goes to {t}
    this is for {t}: {a}
    this is my {noun}: {a}. Use {t}
    this one is for {t}, with {a}
    that is a {noun} for {t}: {a}
    that was {a}, now {t}
    here is {a} for {t}
    here is a {noun} for {t}: {a}
    here comes {a}. Run {t}
    here you have {a}; use {t}
    there is {a}, and {t} can {verb} it
    there is {t} for {a}
    there are many tools, but use {t} for {a}
    it is about {a}, so call {t}
    it is {a} that {t} should {verb}
    it has to be {t}, with {a}
    it must be {a}. Check with {t}
    i have {a} here, so run {t}
    i have {a}. What does {t} say?
    i have a {noun}, {a}, for {t}
    i have this {noun} {a} and want {t} to {verb} it
    i know only {a}; {t} knows more
    i know that {t} can {verb} {a}
    i need {t} for {a}
    i need {t} to {verb} {a}
    i need {a} from {t}
    i need to know about {a}, and {t} can say it
    i need the {noun} of {a}; ask {t}
    i need a {noun} for {a} from {t}
    i want {t} to {verb} {a}
    i want {a} in {t}
    i want to see what {t} does with {a}
    i want to know what {t} thinks about {a}
    i am looking for {a}, use {t}
    i am looking for {a} in {t}
    i am interested in {a}. Try {t}
    i am sure that {t} knows {a}
    i am told {t} is able to {verb} {a}
    i do not know {a}, but {t} does
    i forgot the {noun} of {a}; {t} should have it
    i cannot {verb} {a} alone. Take {t}
    i lost {a}, can {t} find it?
    i got {a} from my sister. Run {t} on that
    i think {a} is right for {t}
    i think {t} is able to {verb} {a}
    i would call {t} with {a}
    i was asked about {a}; see {t}
    i got this {noun}: {a}. Pass that on to {t}
    we have {a}, and {t} is free
    we have {t}, so {verb} {a}
    we need {t} now, for {a}
    we need {a}, so run {t}
    we talk about {a}; {t} should know
    we are at {a}, let us call {t}
    we got {a} today and {t} can {verb} that
    you have {t}: {verb} {a}
    you have {t}, and I have {a}
    you know {t}? Then {verb} {a}
    you see {a}. Use {t} now
    you will need {t} to {verb} {a}
    you get {a}; now {verb} it with {t}
    my {noun} is {a}. Ask {t} for it
    my {noun} is {a}, what does {t} say?
    my friend asked for {a}: let {t} {verb} it
    my question is about {a}, and {t} has the answer
    my boss needs {a} from {t}
    our {noun} is {a}, so {t} can start
    our customer wants {a}, {t} will do
    her {noun} is {a}. Please try {t}
    his {noun} was {a}; {t} will tell more
    what is {a}? {t} knows
    what is {a}? Use {t}
    what is the {noun} of {a}? Use {t}
    what is the {noun} of {a} in {t}?
    what is the {noun} of {a}, says {t}?
    what does {t} say about {a}?
    what does {t} give for {a}?
    what does {t} return for {a}?
    what does {t} tell us about {a}?
    what does {t} make of {a}?
    what does {a} mean? See {t}
    what would {t} say to {a}?
    what do you get from {t} for {a}?
    what comes out if {t} gets {a}?
    what happens if you run {t} with {a}?
    what has {t} on {a}?
    what about {a}? Ask {t}
    what about {t} for {a}?
    what if {t} had {a}?
    what can {t} do with {a}?
    which {noun} has {a}? {t} can tell
    which {noun} does {t} have for {a}?
    which {noun} belongs to {a}? Look in {t}
    where is {a}? {t} knows that
    where is {a}? Use {t} to see
    who knows {a}? Try {t}
    who is {a}? The {t} tool has it
    how is {a} doing? Use {t}
    how many {noun}s has {a}? Call {t}
    how much is {a}? Let {t} say it
    how does {t} {verb} {a}?
    how would {t} answer to {a}?
    when was {a}? Call {t} to find out
    why not ask {t} about {a}?
    is {a} {adj}? Let {t} decide
    is {a} in {t}?
    is there any {noun} for {a} in {t}?
    is it true that {t} can {verb} {a}?
    does {t} know {a}?
    does {t} have {a}?
    does {a} work with {t}?
    do you think {t} can {verb} {a}?
    do we have {a}? {t} can say
    did {t} see {a}?
    can {t} {verb} {a}?
    can {t} help with {a}?
    can {a} be found with {t}?
    could {t} look at {a}?
    could {t} take {a}, please?
    will {t} take {a}?
    would {t} know the {noun} of {a}?
    should {a} go to {t}? Yes, do it
    has {t} anything about {a}?
    are there {noun}s of {a}? See what {t} says
    if {t} is free, {verb} {a}
    if {a} is known to {t}, show the {noun}
    if you have {t}, {verb} {a}
    if you call {t} with {a} you will see
    as {t} can do it: {verb} {a}
    since you have {t}, {verb} {a} with it
    because of {a} we need {t}
    no idea what {a} is, but {t} should know
    nobody knows {a}. Use {t}
    somebody gave me {a}; {t} can {verb} it
    someone wants {a} and only {t} can {verb} it
    everything about {a} is in {t}
    only {t} can {verb} {a}
    yes, {t}, and the {noun} is {a}
    new {noun}: {a}. Run {t}
    one {noun} for {t}: {a}
    one more: {t} with {a}
    next one is {a}, for {t}
    more on {a} from {t}, please
    thanks for {t}. Now {verb} {a}
    time for {t}: {a} is here
    a call of {t} with {a} is what I want
    a {noun} named {a} should be known to {t}
    a {noun} came in: {a}. Let {t} {verb} it
    some help with {a}, please; {t} does that
    tool: {t}. Input: {a}
    tool {t}, {noun} {a}
    input {a}, tool {t}
    command: {t} {a}
    ready? {t} gets {a}
    go: {t}, {a}
    given {a}, what would {t} answer?
    given that {t} is there, {verb} {a}
    """
)
"""Sentences that are whole, with any first word."""

CLOSINGS = _lines(
    """
    , then say the number
    , then say the number
    , and say what it answers
    , then tell me what it says
    , and tell me the answer
    , and tell me what you get
    and tell me the result
    and say the answer
    and give me the answer
    and report the result
    and reply with the result only
    and let me know
    and show me the {noun}
    and come back to me
    . Tell me what it says
    . Then tell me
    . Then answer
    . Then say what you got
    . Say the answer
    . Give me only the answer
    . What does it say?
    . What is the result?
    . What do you get?
    . I will wait
    . I need it soon
    . It is for my {noun}
    . That is all
    . Thank you
    . Thanks
    . Be brief
    . Do it now
    . My {noun} waits for it
    . Nothing else
    , please
    , please
    , if you can
    , will you
    , thanks
    , thank you
    for me
    for me, please
    now
    now, please
    today
    right now
    once
    again
    """
)

HAND_ONS = _lines(
    """
    {first}. Give {r} to {t}
    {first}, and give {r} to {t}
    {first} and pass {r} on to {t}
    {first} and pass {r} to {t}
    {first} and send {r} to {t}
    {first} and put {r} into {t}
    {first} and use {r} for {t}
    {first}, and {t} gets {r}
    {first}, and {t} is next
    {first}, and then {t}
    {first}, and then {t} with {r}
    {first}, and after that {t}
    {first}, and with {r} call {t}
    {first}, then {t}
    {first}, then {t} with {r}
    {first}, then {t} should {verb} {r}
    {first}, then run {t}
    {first}, then run {t} with {r}
    {first}, then let {t} {verb} {r}
    {first}, then ask {t} about {r}
    {first}, then {verb} {r} with {t}
    {first}, {t} next
    {first}; {t} wants {r}
    {first}; {t} comes after
    {first}; then go on with {t}
    {first}. {t} takes {r}
    {first}. Then {t}
    {first}. Then {t} with {r}
    {first}. Then call {t} with {r}
    {first}. Then give {r} to {t}
    {first}. Then put {r} through {t}
    {first}. Then {verb} {r} with {t}
    {first}. Then have {t} {verb} {r}
    {first}. Then tell {t} {r}
    {first}. Next, {t}
    {first}. Next, {t} gets {r}
    {first}. Next use {t} on {r}
    {first}. Now {r} is for {t}
    {first}. After that, {t}
    {first}. After that, call {t} with {r}
    {first}. After that {t} should have {r}
    {first}. Afterwards {t} takes {r}
    {first}. Finally, run {t} on {r}
    {first}. Continue with {t}
    {first}. Put {r} into {t}
    {first}. Pass {r} to {t}
    {first}. Feed {r} to {t}
    {first}. Take {r} to {t}
    {first}. Send {t} {r}
    {first}. Use {r} as the input of {t}
    {first}. With {r}, run {t}
    {first}. With {r} call {t}
    {first}. What does {t} say to {r}?
    {first}. {r} goes to {t}
    {first}. {r} is the input for {t}
    {first}. {r} is what I want {t} to {verb}
    {first}. {r} should be passed to {t}
    {first}. {r} must go into {t}
    {first}. When you have {r}, call {t}
    {first}. When it has answered, {t} is to {verb} {r}
    {first}. When that is done, use {t}
    {first}. Once you know {r}, give that to {t}
    {first}. Once done, run {t} on {r}
    {first}. As soon as you have {r}, run {t}
    {first}. I want {r} in {t}
    {first}. I also need {t}, with {r}
    {first}. You will need {r} for {t}
    {first}. The next tool is {t}, and it gets {r}
    {first}. The second step is {t} on {r}
    {first}. It is {t} that needs {r}
    {first} before you call {t}
    {first} so that {t} can {verb} {r}
    {first}, so that {t} has {r}
    {first}, because {t} needs {r}
    {first}, for {t} needs {r}
    {first}; use {r} in {t}
    {first}: {r} is for {t}
    {first}; after this it is the turn of {t}
    {first} -> {t}
    two steps: {first}, then {t} with {r}
    two steps. {first}. Then {t}
    first {first}, then {t}
    first {first}, then {t} with {r}
    first {first}, and then {verb} {r} with {t}
    first {first}. Then {t} gets {r}
    first {first}. Second, call {t} with {r}
    one after the other: {first}, then {t}
    give {t} {r} of this: {first}
    call {t} with {r} of this call: {first}
    {t} needs a value. To have it, {first}
    {t} should {verb} {r}, but before that {first}
    {t} comes last. Before that {first}
    before {t} you have to {first}
    before you run {t}, {first}
    to use {t} you need {r}: {first}
    for {t} we need {r}, so {first}
    after you {first}, call {t} with {r}
    """
)
"""Ways to hand an answer on to a tool: {first} asks for the call before, in the base form or as a
sentence."""

REFERENCES = _lines(
    """
    the result
    the result
    the answer
    the answer
    the output
    the value
    the number
    that
    that
    it
    this
    its answer
    its result
    its reply
    that result
    that answer
    that value
    what it says
    what it answers
    what it finds
    what it gives you
    what you get
    what you got
    what you find
    what comes back
    what came back
    what it tells you
    whatever it says
    whatever it finds
    whatever you get
    whatever it answers
    the result of that
    the answer of that
    the thing it finds
    the reply
    the new value
    the {noun}
    the {noun}
    its {noun}
    that {noun}
    the {noun} that you get
    what it {verb}s
    whatever it {verb}s
    """
)
"""An answer that there is not yet."""

UNNAMED = _lines(
    """
    {verb} the {noun} of {a}
    {verb} {noun} {a}
    {verb} {a}: the {noun}
    {verb} the {noun} with {a}
    please {verb} the {noun} for {a}
    what is the {noun} of {a}?
    what {noun} is in {a}?
    which {noun} has {a}?
    I need the {noun} of {a}
    I want to {verb} the {noun} {a}
    I want to know the {noun} of {a}
    I am curious about the {noun} of {a}
    find the {noun} of {a}
    tell me the {noun} of {a}
    {noun} of {a}
    use a tool to {verb} the {noun} of {a}
    """
)
"""The tool is to be found by what it is for."""
UNCONDITIONED = _lines(
    """
    use {t}
    call {t}
    run {t}
    please run {t}
    start the {t} tool
    ask {t}
    I need {t}
    what does {t} say?
    make a call of {t}
    let {t} {verb}
    try {t} now
    {t}
    """
)
"""The tool has no arguments."""
WORD = re.compile(r"(?<![\w{}`'\"])[a-z]{3,}(?![\w{}])")


def blurred(random: Random, form: str, word: str) -> str:
    """The sentence with one of its words replaced, so that its shape has to be read."""
    spans = [match.span() for match in WORD.finditer(form)]
    if not spans:
        return form
    start, end = random.choice(spans)
    return form[:start] + word + form[end:]


def sentence_words() -> list[str]:
    """Words that have an id of their own: those that name no tool with the space before them, and
    all of them as a sentence begins. So what is read in pieces is a name or a value."""
    forms = (*WISHES, *OPENINGS, *STATEMENTS, *CLOSINGS, *HAND_ONS, *REFERENCES, *UNNAMED)
    used = {word.lower() for form in forms for word in SLOT_OR_WORD.findall(form) if word[0] != "{"}
    used |= {*COMMON, *FILLERS}
    content = {*NOUNS, *VERBS, *ADJECTIVES}
    alone = sorted(used & content)
    begins = sorted({word.capitalize() for word in used})
    return [*(f" {word}" for word in sorted(used - content)), *alone, *begins]


SLOT_OR_WORD = re.compile(r"\{\w+\}|[A-Za-z]+")
